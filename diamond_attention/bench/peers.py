"""What other systems were recorded to do on the same work."""

from typing import Any

RECORDED = tuple(
    {"world": world, "what": what, "device": device, "system": system, "setting": setting, "steps_per_second": speed}
    for world, what, device, system, setting, speed in (
        ("spread", "simulation", "cpu", "VMAS 1.5.2", "64 envs", 1.8e4),
        ("spread", "simulation", "cpu", "VMAS 1.5.2", "1,024 envs", 2.0e5),
        ("spread", "simulation", "cpu", "VMAS 1.5.2", "8,192 envs", 3.8e5),
        ("spread", "simulation", "cpu", "JaxMARL 0.2.0 MPE", "64 envs", 1.7e5),
        ("spread", "simulation", "cpu", "JaxMARL 0.2.0 MPE", "1,024 envs", 2.1e5),
        ("spread", "simulation", "gpu", "JaxMARL 0.2.0 MPE", "4,096 envs", 7.7e7),
        ("spread", "simulation", "gpu", "JaxMARL 0.2.0 MPE", "65,536 envs", 3.6e8),
        ("spread", "training", "cpu", "BenchMARL 1.5.2 MAPPO", "64 envs, MLP 64×64, 10 epochs", 3.1e3),
        ("spread", "training", "cpu", "Stable-Baselines3 2.9.2 PPO", "64 envs, joint MLP 64×64, 10 epochs", 7.3e3),
        ("spread", "training", "gpu", "JaxMARL 0.2.0 IPPO", "4,096 envs × 32 steps, MLP 64×64, 5 epochs", 8.3e6),
        ("smaclite", "simulation", "cpu", "SMAClite, numpy", "2s3z, one core", 56.0),
        ("smaclite", "simulation", "cpu", "SMAClite, numpy", "3s5z, one core", 42.0),
        ("smaclite", "simulation", "cpu", "SMAClite, numpy", "MMM2, one core", 28.9),
        ("smaclite", "simulation", "cpu", "SMAClite, C++", "2s3z, one core", 89.0),
        ("smaclite", "simulation", "cpu", "SMAClite, C++", "3s5z, one core", 77.0),
        ("smaclite", "simulation", "cpu", "SMAClite, C++", "MMM2, one core", 52.4),
        ("smaclite", "simulation", "cpu", "JaxMARL 0.2.0 SMAX, a simpler game", "2s3z, 64 envs", 3.1e4),
        ("smaclite", "simulation", "gpu", "JaxMARL 0.2.0 SMAX, a simpler game", "2s3z, 4,096 envs", 1.4e7),
        ("smaclite", "simulation", "gpu", "JaxMARL 0.2.0 SMAX, a simpler game", "2s3z, 16,384 envs", 2.2e7),
    )
)
"""Recorded elsewhere: on one AMD EPYC core (±20 %) or one H200, not in this run. Simple Spread has four agents."""


def recorded_beside(world: str, device: str) -> list[dict[str, Any]]:
    """What was recorded of this world on such a device; the original SMAClite, which has no other, on the CPU."""
    return [
        row
        for row in RECORDED
        if row["world"] == world and (row["device"] == device or str(row["system"]).startswith("SMAClite"))
    ]
