"""Calls of a replay's methods that reach its kernel without Python code, as those of a tree do.

The usual ``sample(batch, beta, rng)`` has an int up to ``MOST``, a float and a NumPy Generator that nobody draws from
meanwhile; it draws the uniforms itself, by the generator's own function, hence those of ``rng.random(batch)``. The
usual ``update_priorities`` has arrays as batches have them, of errors float32 or float64. All else is left to Python.

Unlike trees, a replay may make its callers wait, so the GIL is always let go.
"""

import ctypes
import functools
import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ..sumtree import direct_calls as direct
from ..sumtree.compiling import compiler
from ..sumtree.direct_calls import MOST
from ..sumtree.kernels.header import WORD, inner
from ..sumtree.lanes import instruction, load_acquire, load_i64, load_real, stack_words, store_i64, store_real, word_of
from .block import BLOCK, LOADS
from .buffer import Batch
from .steps import DONE, NOTHING

_SLOT = object.__basicsize__  # of a replay: a tuple of its words and of what they have addresses of
_KIND, _DATA, _COUNT, _FIRST, _REAL = 1, 2, 2, 3, 16  # words of objects, arrays and tuples; a float's offset
_VIEW, _SAMPLE, _UPDATE, _EXPONENT, _DTYPES, _NAMES = np.arange(6)  # words of a replay
_BOOL = 0  # NumPy's number of the type

# Words of the process, after those of trees.
_SAMPLE_IN_PYTHON, _UPDATE_IN_PYTHON, _FLOAT32, _INT_TYPE, _FLOAT_TYPE, _GENERATOR, _BATCH, _TRUE = np.arange(7, 15)
_FALSE, _AWAIT, _BITS, _CAPSULE, _LOCK, _TAKE, _LET_GO, _ITEM, _ROWS, _WEIGHTS, _SEQUENCE, _NAME = np.arange(15, 27)

_word = types.int64
_new_record = types.ExternalFunction(direct.NEW_RECORD, _word(*[_word] * 8))
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


@instruction(types.float64(_word))
def _draw(builder: Any, bits: Any) -> Any:
    """The next float64 of a bit generator, given the address of NumPy's ``bitgen_t``."""
    word = ir.IntType(64)
    state, function = (
        builder.load(builder.gep(builder.inttoptr(bits, word.as_pointer()), [ir.Constant(word, number)]))
        for number in (0, 3)  # state, next_uint64, next_uint32, next_double
    )
    kind = ir.FunctionType(ir.DoubleType(), [word]).as_pointer()
    return builder.call(builder.inttoptr(function, kind), [state])


@inner
def _get(owner: int, name: int) -> int:
    """A new reference to an attribute; 0 where there is none."""
    return _attribute(owner, direct.of_process(name)) if owner != 0 else 0


@inner
def _draw_uniforms(generator: int, count: int, uniforms: int) -> bool:
    """Draw uniforms ``[count]``, the GIL and the generator's lock held; False, with none drawn, if others have it."""
    bits, given, taken = _get(generator, _BITS), stack_words(2), 0
    capsule, lock = _get(bits, _CAPSULE), _get(bits, _LOCK)
    at = _address_in(capsule, direct.of_process(_NAME)) if capsule != 0 and lock != 0 else 0
    store_i64(given, lock)
    store_i64(given + WORD, direct.of_process(_FALSE))
    if at != 0:
        taken = _call_method(direct.of_process(_TAKE), given, 2, 0)
    is_mine = taken == direct.of_process(_TRUE)
    if is_mine:
        for j in range(count):
            store_real(uniforms + WORD * j, _draw(at))
        direct.drop(_call_method(direct.of_process(_LET_GO), given, 1, 0))
    for one in (taken, lock, capsule, bits):
        direct.drop(one)
    _forget_error()
    return is_mine


@inner
def _words_of(replay: int) -> int:
    """The words of a replay that is open; else 0."""
    held = load_i64(replay + _SLOT)
    return word_of(word_of(held, _FIRST), _DATA) if held != 0 and held != direct.of_process(direct.NONE) else 0


@inner
def _dtype_of(words: int, arguments: int) -> int:
    """The dtype of a batch, borrowed, if the arguments are usual ones and a batch of so many was made before; else 0.

    Usual are a size, a beta and a generator.
    """
    for number, kind in enumerate((_INT_TYPE, _FLOAT_TYPE, _GENERATOR)):
        if word_of(word_of(arguments, number), _KIND) != direct.of_process(kind):
            return 0
    is_beta = 0.0 <= load_real(word_of(arguments, 1) + _REAL, 0.0) < math.inf
    return _find(word_of(words, _DTYPES), load_i64(arguments)) if is_beta else 0


@inner
def _batch(words: int, memory: int) -> int:
    """A batch whose arrays lie in the memory of a record; 0 if memory ran out."""
    given, names, status = stack_words(1), word_of(words, _NAMES), 0
    store_i64(given, memory)
    arrays = _call_method(direct.of_process(_ITEM), given, 1, 0)
    rows = _new_dict() if arrays != 0 else 0
    batch = _new_object(direct.of_process(_BATCH), 0) if rows != 0 else 0
    if batch != 0:
        for number in range(word_of(names, _COUNT)):
            status |= _put(rows, word_of(names, _FIRST + number), word_of(arrays, _FIRST + 2 + number))
        status |= _set(batch, direct.of_process(_ROWS), rows)
        for number, name in enumerate((_SEQUENCE, _WEIGHTS)):
            status |= _set(batch, direct.of_process(name), word_of(arrays, _FIRST + number))
    for one in (rows, arrays, batch if status != 0 else 0):
        direct.drop(one)
    return batch if status == 0 else 0


@inner
def _fill(replay: int, words: int, uniforms: int, size: int, beta: float, memory: int) -> int:
    """Sample into the memory of a record, as often as ``Replay._await_records`` returns; NOTHING once it raises."""
    view, kernel, given, waited = word_of(words, _VIEW), word_of(words, _SAMPLE), stack_words(1), 1
    loads, out, status = word_of(view, BLOCK) + WORD * LOADS, word_of(memory, _DATA), NOTHING
    store_i64(given, replay)
    while status == NOTHING and waited != 0:
        others, before = direct.let_others_run(), -1
        while load_acquire(loads) != before:  # again if a state was loaded, see ``BlockOfBanks._of_one_state``
            before = load_acquire(loads)
            status = direct.call_kernel(kernel, (0, view, (uniforms, size, WORD), True, beta, out))
        direct.run_again(others)
        if status == NOTHING:
            waited = direct.call_object(direct.of_process(_AWAIT), given, 1, 0)
            direct.drop(waited)
    return status


def _sample(replay: int, arguments: int, count: int, names: int) -> int:
    words = _words_of(replay) if count == 3 and names == 0 else 0
    dtype = _dtype_of(words, arguments) if words != 0 else 0
    size = _number_of(load_i64(arguments)) if dtype != 0 else 0
    if 0 < size <= MOST:
        held, uniforms, result, status = load_i64(replay + _SLOT), stack_words(MOST), 0, direct.FAILED
        direct.keep(dtype)
        memory = _new_record(direct.of_process(direct.ARRAY), dtype, 0, 0, 0, 0, 0, 0)
        direct.keep(held)
        if memory != 0 and _draw_uniforms(word_of(arguments, 2), size, uniforms):
            status = _fill(replay, words, uniforms, size, load_real(word_of(arguments, 1) + _REAL, 0.0), memory)
            result = _batch(words, memory) if status == DONE else 0
        direct.drop(held)
        direct.drop(memory)
        if memory == 0 or status != direct.FAILED:
            return result
    return direct.call_python(direct.of_process(_SAMPLE_IN_PYTHON), replay, arguments, count, names)


def _update(replay: int, arguments: int, count: int, names: int) -> int:
    words = _words_of(replay) if count == 2 and names == 0 else 0
    sequence, errors = (load_i64(arguments), word_of(arguments, 1)) if words != 0 else (0, 0)
    size = direct.size_of(sequence, direct.INT64) if words != 0 else 0
    is_single = size > 0 and direct.size_of(errors, _FLOAT32) == size
    if is_single or (size > 0 and direct.size_of(errors, direct.FLOAT64) == size):
        held, reals, room, shape = load_i64(replay + _SLOT), word_of(errors, _DATA), stack_words(MOST), stack_words(1)
        store_i64(shape, size)
        present = direct.new_array(direct.of_process(direct.ARRAY), 1, shape, _BOOL, 0, 0, 0, 0, 0)
        if present == 0:
            return 0
        for j in range(size if is_single else 0):
            store_real(room + WORD * j, np.float64(load_real(reals + 4 * j, np.float32(0.0))))
        tickets, flags = (word_of(sequence, _DATA), size, WORD), (word_of(present, _DATA), size, 1)
        values, exponent = (room if is_single else reals, size, WORD), (word_of(words, _EXPONENT), 4, WORD)
        direct.keep(held)
        others = direct.let_others_run()
        given = (0, word_of(words, _VIEW), tickets, values, exponent, flags)
        status = direct.call_kernel(word_of(words, _UPDATE), given)
        direct.run_again(others)
        direct.drop(held)
        if status == DONE:
            return present
        direct.drop(present)
    return direct.call_python(direct.of_process(_UPDATE_IN_PYTHON), replay, arguments, count, names)


_SAMPLED, _UPDATED = (
    "($self, batch, beta, rng=None, *, uniforms=None, out=None, distinct=False)",
    "($self, sequence, errors)",
)
_METHODS = {
    "sample": (_sample, _SAMPLE_IN_PYTHON, _SAMPLED),
    "update_priorities": (_update, _UPDATE_IN_PYTHON, _UPDATED),
}
_kept: list[Any] = []  # what others have the addresses of


def open_to(replay: Any, kind: Any) -> None:
    """Let calls of a replay reach its kernels, which are compiled, and its class ``kind`` take part."""
    (bank,), kernels, words = replay._banks, replay.kernels, np.zeros(6, np.int64)
    reals, front = types.float64[::1], (types.literal(0), types.int64)
    sample = *front, reals, types.boolean, types.float64, types.int64
    update = *front, types.int64[::1], reals, reals, types.boolean[::1]
    words[[_VIEW, _EXPONENT]] = bank.address, replay._exponent.ctypes.data
    words[[_SAMPLE, _UPDATE]] = direct.address_of(kernels.sample, sample), direct.address_of(kernels.update, update)
    words[[_DTYPES, _NAMES]] = id(replay._plan.known), id(replay._plan.names)
    replay._direct = words, bank, replay._exponent, replay._plan
    if direct.can_replace() and ctypes.c_void_p.from_address(id(replay) + _SLOT).value == id(replay._direct):
        compiler.run(_open, kind)


@functools.cache
def _open(kind: Any) -> None:
    """Put the compiled functions into a class of replays in place of its methods in Python."""
    strings = "bit_generator", "capsule", "lock", "acquire", "release", "item", "rows", "weights", "sequence"
    objects = np.dtype(np.float32), int, float, np.random.Generator, Batch, True, False, kind._await_records
    name = np.frombuffer(b"BitGenerator\0", np.uint8)
    words = [*map(id, objects), *map(id, strings), int(name.ctypes.data)]
    direct.process[_FLOAT32 : _FLOAT32 + len(words)] = words
    _kept.extend([strings, objects, name, direct.replace_methods(kind, _METHODS)])
