"""CUDA kernels of the GPU tree, and who runs them: ``device.py`` a GPU, ``emulation.py`` this processor."""
