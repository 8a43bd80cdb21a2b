"""Report files that load-test tools wrote themselves against `stream_server`, and how to write them again.

    python tests/load_reports/stream_server.py 8765
    locust -f tests/load_reports/locust_stream.py --headless -u 4 -r 4 -t 20s --host http://127.0.0.1:8765 --csv locust

The tools are not among the requirements: install them beside the project.
"""
