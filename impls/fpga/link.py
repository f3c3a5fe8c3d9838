"""The link between a host and an FPGA: a fixed cost a transfer and a bandwidth, each way."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """A transfer of n bytes takes alpha + n / beta, by direction: ``to`` the device or ``from`` it."""

    alpha_to_seconds: float
    beta_to_bytes_per_second: float
    alpha_from_seconds: float
    beta_from_bytes_per_second: float

    def to_device_seconds(self, nbytes: int) -> float:
        """Seconds to send so many bytes."""
        return self.alpha_to_seconds + nbytes / self.beta_to_bytes_per_second

    def from_device_seconds(self, nbytes: int) -> float:
        """Seconds to fetch so many bytes."""
        return self.alpha_from_seconds + nbytes / self.beta_from_bytes_per_second


U200_LINK = Link(13.6e-6, 7.45e9, 13e-6, 12.1e9)
"""Quoted: fitted to the bandwidth example's log of a real Alveo U200 (Vitis_Accel_Examples, host_global_bandwidth; six
sizes from 64 B to 256 MB, worst 13 % off). Seed 3's 16 GB/s is the raw rate of the link, and has no latency."""
