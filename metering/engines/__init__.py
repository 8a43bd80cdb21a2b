"""Token counters of inference servers as evidence: what vLLM and SGLang counted, beside what gateways report.

    samples.py    PURE: Prometheus' text format and the answers of its API -> samples
    readings.py   PURE: samples -> EngineReading
    command.py    `python -m metering engines`

A reading is cumulative and exact; nothing is subtracted or rated here, so nothing is lost when the reader stops for a while.
"""
