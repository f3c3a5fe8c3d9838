"""Calls of a replay's methods that reach its kernel without Python code, as those of a tree do.

The usual ``sample(batch, beta, rng)`` has an integer up to ``MOST``, a number and a NumPy Generator that nobody draws
from meanwhile; it draws the uniforms itself, by the generator's own function, hence those of ``rng.random(batch)``. The
usual ``update_priorities`` has arguments ``[B]`` that those of a tree read. All else is left to Python.

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
from ..sumtree.direct_calls import ARRAY, FALSE, MOST, NONE, call_method, drop, forget_error, in_order, of_process, read
from ..sumtree.kernels.header import WORD, inner
from ..sumtree.lanes import instruction, load_acquire, load_i64, load_real, stack_words, store_i64, store_real, word_of
from .block import BLOCK, LOADS
from .buffer import Batch
from .steps import DONE, NOTHING

_SLOT = object.__basicsize__  # of a replay: a tuple of its words and of what they have addresses of
_KIND, _DATA, _COUNT, _FIRST = 1, 2, 2, 3  # words of objects, arrays and tuples
_VIEW, _SAMPLE, _UPDATE, _EXPONENT, _DTYPES, _NAMES = np.arange(6)  # words of a replay
_BOOL = 0  # NumPy's number of the type

# Words of the process, after those of trees: objects, names of attributes and methods, names of parameters.
_GENERATOR, _BATCH, _TRUE, _AWAIT, _NAME = np.arange(5) + direct.END
_BITS, _CAPSULE, _LOCK, _TAKE, _LET_GO, _ITEM, _ROWS, _WEIGHTS, _SEQUENCE = np.arange(9) + direct.END + 5
_SAMPLE_IN_PYTHON, _UPDATE_IN_PYTHON, _BATCH_SIZE, _, _, _TICKETS, _ = np.arange(7) + direct.END + 14
_STRINGS = (
    *("bit_generator", "capsule", "lock", "acquire", "release", "item", "rows", "weights", "sequence"),
    *("_sample_in_python", "_update_priorities_in_python", "batch", "beta", "rng", "sequence", "errors"),
)

_word = types.int64
_new_record = types.ExternalFunction(direct.NEW_RECORD, _word(*[_word] * 8))
_address_in = types.ExternalFunction("PyCapsule_GetPointer", _word(_word, _word))
_find = types.ExternalFunction("PyDict_GetItem", _word(_word, _word))
_new_dict = types.ExternalFunction("PyDict_New", _word())
_put = types.ExternalFunction("PyDict_SetItem", types.int32(_word, _word, _word))
_new_object = types.ExternalFunction("PyType_GenericAlloc", _word(_word, _word))
_set = types.ExternalFunction("PyObject_GenericSetAttr", types.int32(_word, _word, _word))  # frozen or not


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
    return direct.get_attribute(owner, of_process(name)) if owner != 0 else 0


@inner
def _draw_uniforms(generator: int, count: int, uniforms: int) -> bool:
    """Draw uniforms ``[count]``, the GIL and the generator's lock held; False, with none drawn, if others have it."""
    bits, given, taken = _get(generator, _BITS), stack_words(2), 0
    capsule, lock = _get(bits, _CAPSULE), _get(bits, _LOCK)
    at = _address_in(capsule, of_process(_NAME)) if capsule != 0 and lock != 0 else 0
    store_i64(given, lock)
    store_i64(given + WORD, of_process(FALSE))
    if at != 0:
        taken = call_method(of_process(_TAKE), given, 2, 0)
    is_mine = taken == of_process(_TRUE)
    if is_mine:
        for j in range(count):
            store_real(uniforms + WORD * j, _draw(at))
        drop(call_method(of_process(_LET_GO), given, 1, 0))
    for one in (taken, lock, capsule, bits):
        drop(one)
    forget_error()
    return is_mine


@inner
def _words_of(replay: int) -> int:
    """The words of a replay that is open; else 0."""
    held = load_i64(replay + _SLOT)
    return word_of(word_of(held, _FIRST), _DATA) if held != 0 and held != of_process(NONE) else 0


@inner
def _dtype_of(words: int, given: int) -> tuple[int, int, float]:
    """Return (dtype of a batch, borrowed; B; beta) for usual arguments, if a batch of B was made before; else 0 first.

    Usual are a size, a beta and a generator.
    """
    for number in range(3):
        if word_of(given, number) == 0:
            return 0, 0, 0.0
    size, is_size, is_one = read(load_i64(given), stack_words(MOST), 1)
    beta, is_beta, is_number = read(word_of(given, 1), stack_words(MOST), 0)
    is_generator = word_of(word_of(given, 2), _KIND) == of_process(_GENERATOR)
    if is_size == 0 or is_beta == 0 or not (is_one and is_number and is_generator):
        return 0, 0, 0.0
    is_usual = 0.0 <= load_real(beta, 0.0) < math.inf and 0 < load_i64(size) <= MOST
    return _find(word_of(words, _DTYPES), load_i64(given)) if is_usual else 0, load_i64(size), load_real(beta, 0.0)


@inner
def _batch(words: int, memory: int) -> int:
    """A batch whose arrays lie in the memory of a record; 0 if memory ran out."""
    given, names, status = stack_words(1), word_of(words, _NAMES), 0
    store_i64(given, memory)
    arrays = call_method(of_process(_ITEM), given, 1, 0)
    rows = _new_dict() if arrays != 0 else 0
    batch = _new_object(of_process(_BATCH), 0) if rows != 0 else 0
    if batch != 0:
        for number in range(word_of(names, _COUNT)):
            status |= _put(rows, word_of(names, _FIRST + number), word_of(arrays, _FIRST + 2 + number))
        status |= _set(batch, of_process(_ROWS), rows)
        for number, name in enumerate((_SEQUENCE, _WEIGHTS)):
            status |= _set(batch, of_process(name), word_of(arrays, _FIRST + number))
    for one in (rows, arrays, batch if status != 0 else 0):
        drop(one)
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
            waited = direct.call_object(of_process(_AWAIT), given, 1, 0)
            drop(waited)
    return status


def _sample(replay: int, arguments: int, count: int, names: int) -> int:
    words, given = _words_of(replay), in_order(arguments, count, names, _BATCH_SIZE, 3, stack_words(3))
    dtype, size, beta = _dtype_of(words, given) if words != 0 and given != 0 else (0, 0, 0.0)
    if dtype != 0:
        held, uniforms, result, status = load_i64(replay + _SLOT), stack_words(MOST), 0, direct.FAILED
        direct.keep(dtype)
        memory = _new_record(of_process(ARRAY), dtype, 0, 0, 0, 0, 0, 0)
        direct.keep(held)
        if memory != 0 and _draw_uniforms(word_of(given, 2), size, uniforms):
            status = _fill(replay, words, uniforms, size, beta, memory)
            result = _batch(words, memory) if status == DONE else 0
        drop(held)
        drop(memory)
        if memory == 0 or status != direct.FAILED:
            return result
    return direct.call_python(_SAMPLE_IN_PYTHON, replay, arguments, count, names)


def _update(replay: int, arguments: int, count: int, names: int) -> int:
    words, given = _words_of(replay), in_order(arguments, count, names, _TICKETS, 2, stack_words(2))
    sequence, errors, size, told = 0, 0, 0, 0
    if words != 0 and given != 0 and load_i64(given) != 0 and word_of(given, 1) != 0:
        sequence, size, _ = read(load_i64(given), stack_words(MOST), 1)
        if size > 0:
            errors, told, _ = read(word_of(given, 1), stack_words(MOST), 0)
    if size > 0 and told == size:
        held, shape = load_i64(replay + _SLOT), stack_words(1)
        store_i64(shape, size)
        present = direct.new_array(of_process(ARRAY), 1, shape, _BOOL, 0, 0, 0, 0, 0)
        if present == 0:
            return 0
        tickets, flags = (sequence, size, WORD), (word_of(present, _DATA), size, 1)
        values, exponent = (errors, size, WORD), (word_of(words, _EXPONENT), 4, WORD)
        direct.keep(held)
        others = direct.let_others_run()
        kernel = 0, word_of(words, _VIEW), tickets, values, exponent, flags
        status = direct.call_kernel(word_of(words, _UPDATE), kernel)
        direct.run_again(others)
        drop(held)
        if status == DONE:
            return present
        drop(present)
    return direct.call_python(_UPDATE_IN_PYTHON, replay, arguments, count, names)


_METHODS = {
    "sample": (_sample, "($self, batch, beta, rng=None, *, uniforms=None, out=None, distinct=False)"),
    "update_priorities": (_update, "($self, sequence, errors)"),
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
    objects, name = (np.random.Generator, Batch, True, kind._await_records), np.frombuffer(b"BitGenerator\0", np.uint8)
    direct.process[_GENERATOR : _NAME + 1] = *map(id, objects), int(name.ctypes.data)
    direct.name_words(direct.process, _BITS, _STRINGS)
    _kept.extend([objects, name, direct.replace_methods(kind, _METHODS)])
