"""The best designs for an FPGA, by the laws of ``impls.fpga``."""
