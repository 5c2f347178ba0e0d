# It needs Stable-Baselines3, and is a script.
collect_ignore = ["record_sb3.py"]
