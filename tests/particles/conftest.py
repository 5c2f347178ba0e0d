# It needs VMAS, and is a script.
collect_ignore = ["record_vmas.py"]
