"""Calls of a replay's methods that reach its kernel without Python code, as those of a tree do.

The usual ``sample(batch, beta, rng)`` has an int up to ``MOST``, a float and a NumPy Generator that nobody draws from
meanwhile; it draws the uniforms itself, by the generator's own function, hence those of ``rng.random(batch)``. The
usual ``update_priorities`` has arrays as batches have them, of errors float32 or float64. All else is left to Python.

Unlike trees, a replay may make its callers wait, so the GIL is always let go.
"""

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..sumtree.compiling import compiler
from ..sumtree.direct_calls import (
    ARRAY,
    DATA,
    FAILED,
    FLOAT64,
    INT64,
    ITEMS,
    KIND,
    MOST,
    NEW_RECORD,
    NONE,
    address_of,
    call_kernel,
    call_object,
    call_python,
    can_replace,
    drop,
    keep,
    let_others_run,
    new_array,
    of_process,
    process,
    replace_methods,
    run_again,
    size_of,
)
from ..sumtree.kernels.header import WORD, inner
from ..sumtree.lanes import array_at, load_i64, load_real, stack_words, store_i64, store_real, word_of
from .block import BLOCK, LOADS
from .buffer import Batch
from .steps import DONE, NOTHING
from .sync import load_acquire

_SLOT = object.__basicsize__  # of a replay: a tuple of its words and of what they have addresses of
_SIZE, _REAL = 16, 16  # offsets in a tuple and a float
_VIEW, _SAMPLE, _UPDATE, _EXPONENT, _DTYPES, _NAMES = np.arange(6)  # words of a replay

# Words of the process, after those of trees.
_SAMPLE_IN_PYTHON, _UPDATE_IN_PYTHON, _FLOAT32, _INT_TYPE, _FLOAT_TYPE, _GENERATOR, _BATCH, _TRUE = np.arange(7, 15)
_FALSE, _REFUSE, _BITS, _CAPSULE, _LOCK, _TAKE, _LET_GO, _ITEM, _ROWS, _WEIGHTS, _SEQUENCE, _NAME = np.arange(15, 27)

_word = types.int64
_new_record = types.ExternalFunction(NEW_RECORD, _word(*[_word] * 8))
_attribute = types.ExternalFunction("PyObject_GetAttr", _word(_word, _word))
_call_method = types.ExternalFunction("PyObject_VectorcallMethod", _word(*[_word] * 4))
_address_in = types.ExternalFunction("PyCapsule_GetPointer", _word(_word, _word))
_number_of = types.ExternalFunction("PyLong_AsSsize_t", _word(_word))
_find = types.ExternalFunction("PyDict_GetItem", _word(_word, _word))
_new_dict = types.ExternalFunction("PyDict_New", _word())
_put = types.ExternalFunction("PyDict_SetItem", types.int32(_word, _word, _word))
_new_object = types.ExternalFunction("PyType_GenericAlloc", _word(_word, _word))
_set = types.ExternalFunction("PyObject_GenericSetAttr", types.int32(_word, _word, _word))  # frozen or not
_forget_error = types.ExternalFunction("PyErr_Clear", types.void())
_set_no_memory = types.ExternalFunction("PyErr_NoMemory", _word())


@intrinsic
def _draw(typingctx: Any, bits: Any) -> Any:
    """The next float64 of a bit generator, given the address of NumPy's ``bitgen_t``."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        state, function = (
            builder.load(builder.gep(builder.inttoptr(arguments[0], word.as_pointer()), [ir.Constant(word, number)]))
            for number in (0, 3)  # state, next_uint64, next_uint32, next_double
        )
        kind = ir.FunctionType(ir.DoubleType(), [word]).as_pointer()
        return builder.call(builder.inttoptr(function, kind), [state])

    return types.float64(_word), emit


@inner
def _draw_uniforms(generator: int, count: int, uniforms: int) -> bool:
    """Draw uniforms ``[count]``, the GIL and the generator's lock held; False, with none drawn, if others have it."""
    bits = _attribute(generator, of_process(_BITS))
    capsule = _attribute(bits, of_process(_CAPSULE)) if bits != 0 else 0
    lock = _attribute(bits, of_process(_LOCK)) if capsule != 0 else 0
    at = _address_in(capsule, of_process(_NAME)) if lock != 0 else 0
    given, taken = stack_words(2), 0
    store_i64(given, lock)
    store_i64(given + WORD, of_process(_FALSE))
    if at != 0:
        taken = _call_method(of_process(_TAKE), given, 2, 0)
    is_mine = taken == of_process(_TRUE)
    if is_mine:
        for j in range(count):
            store_real(uniforms + WORD * j, _draw(at))
        drop(_call_method(of_process(_LET_GO), given, 1, 0))
    for one in (taken, lock, capsule, bits):
        drop(one)
    _forget_error()
    return is_mine


@inner
def _item(items: int, number: int) -> int:
    """The object of that number in a tuple."""
    return load_i64(items + ITEMS + WORD * number)


@inner
def _held(replay: int) -> int:
    """The tuple of a replay's words, or 0."""
    return load_i64(replay + _SLOT)


@inner
def _words_of(replay: int, method: int) -> int:
    """The words of an open replay that has the address of a kernel; else 0."""
    held = _held(replay)
    words = load_i64(_item(held, 0) + DATA) if held != 0 and held != of_process(NONE) else 0
    return words if words != 0 and word_of(words, method) != 0 else 0


@inner
def _batch(words: int, memory: int) -> int:
    """A batch whose arrays lie in the memory of a record; 0 if memory ran out."""
    given, names = stack_words(1), word_of(words, _NAMES)
    store_i64(given, memory)
    arrays = _call_method(of_process(_ITEM), given, 1, 0)
    rows = _new_dict() if arrays != 0 else 0
    batch = _new_object(of_process(_BATCH), 0) if rows != 0 else 0
    if batch != 0:
        status = 0
        for number in range(load_i64(names + _SIZE)):
            status |= _put(rows, _item(names, number), _item(arrays, number + 2))
        status |= _set(batch, of_process(_ROWS), rows) | _set(batch, of_process(_WEIGHTS), _item(arrays, 1))
        status |= _set(batch, of_process(_SEQUENCE), _item(arrays, 0))
        if status != 0:
            drop(batch)
            batch = 0
    drop(rows)
    drop(arrays)
    return batch


@inner
def _run_sample(words: int, uniforms: int, size: int, beta: float, out: int) -> int:
    """The status of the kernel, run again if a state was loaded meanwhile: see ``BlockOfBanks._of_one_state``."""
    view = word_of(words, _VIEW)
    loads = word_of(view, BLOCK) + WORD * LOADS
    while True:
        before = load_acquire(loads)
        status = call_kernel(word_of(words, _SAMPLE), (0, view, (uniforms, size, WORD), True, beta, out))
        if load_acquire(loads) == before:
            return status


def _sample(replay: int, arguments: int, count: int, names: int) -> int:
    words = _words_of(replay, _SAMPLE) if count == 3 and names == 0 else 0
    if words != 0:
        number, real, generator = load_i64(arguments), load_i64(arguments + WORD), load_i64(arguments + 2 * WORD)
        is_usual = load_i64(number + KIND) == of_process(_INT_TYPE)
        is_usual &= load_i64(real + KIND) == of_process(_FLOAT_TYPE)
        is_usual &= load_i64(generator + KIND) == of_process(_GENERATOR)
        dtype = _find(word_of(words, _DTYPES), number) if is_usual else 0
        size = _number_of(number) if dtype != 0 else 0
        beta = load_real(real + _REAL, 0.0) if size > 0 else -1.0
        uniforms = stack_words(MOST)
        if size <= MOST and 0.0 <= beta < math.inf:
            keep(dtype)
            memory = _new_record(of_process(ARRAY), dtype, 0, 0, 0, 0, 0, 0)
            if memory == 0:
                return 0
            if _draw_uniforms(generator, size, uniforms):
                held, out = _held(replay), load_i64(memory + DATA)
                keep(held)
                others = let_others_run()
                status = _run_sample(words, uniforms, size, beta, out)
                run_again(others)
                result = 0
                if status == DONE:
                    result = _batch(words, memory)
                elif status == NOTHING:
                    result = call_object(of_process(_REFUSE), arguments, 0, 0)  # which raises
                else:
                    _set_no_memory()
                drop(held)
                drop(memory)
                return result
            drop(memory)
    return call_python(of_process(_SAMPLE_IN_PYTHON), replay, arguments, count, names)


def _update(replay: int, arguments: int, count: int, names: int) -> int:
    words = _words_of(replay, _UPDATE) if count == 2 and names == 0 else 0
    if words != 0:
        sequence, errors = load_i64(arguments), load_i64(arguments + WORD)
        size, reals, room = size_of(sequence, INT64), load_i64(errors + DATA), stack_words(MOST)
        is_single = size > 0 and size_of(errors, _FLOAT32) == size
        if is_single or (size > 0 and size_of(errors, FLOAT64) == size):
            shape = stack_words(1)
            store_i64(shape, size)
            present = new_array(of_process(ARRAY), 1, shape, 0, 0, 0, 0, 0, 0)  # of bool, NumPy's first type
            if present == 0:
                return 0
            if is_single:
                for j in range(size):
                    store_real(room + WORD * j, np.float64(load_real(reals + 4 * j, np.float32(0.0))))
                reals = room
            held = _held(replay)
            keep(held)
            exponent = (word_of(words, _EXPONENT), 4, WORD)
            tickets, flags = (load_i64(sequence + DATA), size, WORD), (load_i64(present + DATA), size, 1)
            others = let_others_run()
            kernel, view = word_of(words, _UPDATE), word_of(words, _VIEW)
            status = call_kernel(kernel, (0, view, tickets, (reals, size, WORD), exponent, flags))
            run_again(others)
            drop(held)
            if status == DONE:
                return present
            drop(present)
    return call_python(of_process(_UPDATE_IN_PYTHON), replay, arguments, count, names)


_METHODS = {
    "sample": (
        _sample,
        _SAMPLE_IN_PYTHON,
        "($self, batch, beta, rng=None, *, uniforms=None, out=None, distinct=False)",
    ),
    "update_priorities": (_update, _UPDATE_IN_PYTHON, "($self, sequence, errors)"),
}
_kept: list[Any] = []  # what others have the addresses of


def open_to(replay: Any, kind: Any, refuse: Callable[[], None]) -> None:
    """Let calls of a replay reach its kernels, which are compiled, and its class ``kind`` take part.

    ``refuse`` raises what is due where there is nothing to sample.
    """
    (bank,), kernels, words = replay._banks, replay.kernels, np.zeros(6, np.int64)
    reals, front = types.float64[::1], (types.literal(0), types.int64)
    sample = *front, reals, types.boolean, types.float64, types.int64
    update = *front, types.int64[::1], reals, reals, types.boolean[::1]
    words[_SAMPLE], words[_UPDATE] = address_of(kernels.sample, sample), address_of(kernels.update, update)
    words[_VIEW], words[_EXPONENT] = bank.address, replay._exponent.ctypes.data
    words[_DTYPES], words[_NAMES] = id(replay._plan.known), id(replay._plan.names)
    replay._direct = words, bank, replay._exponent, replay._plan
    if can_replace() and ctypes.c_void_p.from_address(id(replay) + _SLOT).value == id(replay._direct):
        compiler.run(_open, kind, refuse)


@functools.cache
def _open(kind: Any, refuse: Callable[[], None]) -> None:
    """Put the compiled functions into a class of replays in place of its methods in Python."""
    strings = "bit_generator", "capsule", "lock", "acquire", "release", "item", "rows", "weights", "sequence"
    objects = np.dtype(np.float32), int, float, np.random.Generator, Batch, True, False, refuse
    name = np.frombuffer(b"BitGenerator\0", np.uint8)
    words = [*map(id, objects), *map(id, strings), int(name.ctypes.data)]
    process[_FLOAT32 : _FLOAT32 + len(words)] = words
    _kept.extend([strings, objects, name, replace_methods(kind, _METHODS)])
