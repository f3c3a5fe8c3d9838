"""The ways in which users spell numbers that convert exactly."""

import sys

import numpy as np
import pytest

import impls


def spelled(array):
    """The numbers of an array of whole numbers as users may spell them, where float16 holds each."""
    integers = [array.astype(letter) for letter in "bBhHiIlLqQ"]
    wide = np.zeros(array.nbytes + 8, np.uint8)[1 : 1 + array.nbytes].view(array.dtype)  # not aligned
    wide[:] = array
    found = [
        array,
        wide,
        np.repeat(array, 2)[::2],
        array[::-1].copy()[::-1],
        *integers,
        array.tolist(),
        tuple(array),
    ]
    if array.dtype.kind == "f":
        found += [
            array.astype("e"),
            array.astype("f"),
            [int(each) for each in array],
            list(array.astype("f")),
        ]
    if array.size == 1:
        found += [
            array[0],
            array[0].item(),
            *(each[0] for each in found[4:14]),
            array.reshape(()),
        ]
    return found


def tensors(array):
    """The same numbers as torch's tensors, once the first was seen; none without torch."""
    torch = sys.modules.get("torch") or pytest.importorskip("torch", reason="tensors need torch")
    whole = torch.tensor(array)
    impls.to_numpy(whole)
    found = [
        whole,
        torch.tensor(np.repeat(array, 2))[::2],
        whole.to(torch.int16),
        whole.to(torch.int32),
    ]
    if array.dtype.kind == "f":
        found += [
            whole.half(),
            whole.float(),
            whole.bfloat16(),
            whole.clone().requires_grad_(),
            whole.to(torch.uint8),
        ]
    return [*found, whole[0]] if array.size == 1 else found
