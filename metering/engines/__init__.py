"""Token counters of inference servers as evidence: counts of vLLM and SGLang, for comparison with reports of gateways.

    samples.py    PURE: Prometheus' text format and the answers of its API -> samples
    readings.py   PURE: samples -> EngineReading
    command.py    `python -m metering engines`

A reading is cumulative and exact; nothing is subtracted or rated here, so a pause of the reader loses nothing.
"""
