"""CUDA kernels of the GPU tree; ``device.py`` runs them on a GPU, ``emulation.py`` on this processor."""
