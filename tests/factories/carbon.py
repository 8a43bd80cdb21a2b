"""A cost sheet with its energy, and prices made of it."""



SHEET = {
    "accelerator": "NVIDIA-H800", "currency": "CNY", "gpus_per_server": "8", "server_price": "400000", "gpu_price": "200000",
    "network_price_per_port": "8000", "ports_per_gpu": "1", "gpus_per_rack": "32", "cluster_gpus": "256", "life_years": "5",
    "gpu_power_kw": "0.7", "server_other_power_kw": "2.4", "pue": "1.3", "electricity_price_per_kwh": "0.8",
    "rack_rent_per_month": "8000", "bandwidth_per_month": "2000", "labour_per_month": "200000",
    "software_per_month": "100000", "markup": "0.2",
}  # fmt: skip
PRICES = [{"name": "2026-10", "valid_from": "2026-10-01", "gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": "h800"}]}]
