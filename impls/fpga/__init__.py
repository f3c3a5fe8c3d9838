"""The replay management module on an FPGA: its shape, its cycles, its resources; ``rtl/`` is its hardware twin."""
