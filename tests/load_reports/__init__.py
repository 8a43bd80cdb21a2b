"""Report files that load-test tools wrote themselves against `stream_server`, and how to write them again.

    python tests/load_reports/stream_server.py 8765
    locust -f tests/load_reports/locust_stream.py --headless -u 4 -r 4 -t 20s --host http://127.0.0.1:8765 --csv locust
    guidellm run --backend kind=openai_http,target=http://127.0.0.1:8765,model=known-rate --profile kind=constant,rate=4 \\
        --constraint kind=max_duration,seconds=20 --tokenizer kind=huggingface_auto,model=FOLDER \\
        --data kind=synthetic_text,prompt_tokens=32,output_tokens=50 --output kind=json,path=benchmarks.json

The report of three rates was written with `--profile kind=constant,rate=4,warmup=2,cooldown=2 --override profile.rate
2,4,8`: what begins and ends inside the 16 s between is counted, so nothing is cut off at an edge.
GuideLLM wants a tokenizer to make prompts with: any folder with a tokenizer.json of one token per word does. From its report
the single requests, their densities and the metrics of other media were taken out, for their size.
The tools are not among the requirements: install them beside the project.
"""
