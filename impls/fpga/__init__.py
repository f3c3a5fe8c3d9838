"""The replay manager and the learner on an FPGA: shapes, cycles and resources; ``rtl/`` is the manager's hardware."""
