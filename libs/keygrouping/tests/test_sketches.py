"""Damaged sketches are refused or do no harm; what sound ones are written like, by whom ever, is taken."""

import base64
import json
import random
import subprocess
import sys
import textwrap

import pytest
from datasketches import hll_sketch, hll_union, tgt_hll_type
from keygrouping.aggregate import Distinct
from keygrouping.aggregate.sketch import sound

SEGMENTATION_FAULT = "CgEHBAAIBwKIndq+l5qxQAAAAAAAgKc/AAAAAAAAAAACAAAAAAAAACMBI43P2REw"
SIZES = [0, 1, 2, 7, 8, 9, 23, 24, 25, 100, 200, 383, 384, 400, 3000, 40_000]
DAMAGED = 100_000
"""Sketches that are damaged at random in one test."""

HARM = textwrap.dedent(
    """
    import base64, json, random, sys
    from keygrouping.aggregate import Distinct
    it, chance, sound = Distinct(name="d", field="x"), random.Random(int(sys.argv[1])), json.load(sys.stdin)
    originals = [base64.b64decode(text) for text in sound]
    good = [it.decode(text) for text in sound]
    taken = 0
    for number in range(int(sys.argv[2])):
        data = bytearray(chance.choice(originals))
        for _ in range(chance.choice([1, 1, 2, 5, 40])):
            # Mostly where the form is told: beyond it little is said that isn't a coupon or a register.
            end = min(len(data), chance.choice([8, 12, 40, 4136]))
            data[chance.randrange(end)] = chance.choice([0, 1, 3, 8, 12, 16, 63, 64, 127, 255, chance.randrange(256)])
        cut = chance.random()
        if cut < 0.1:
            data = data[: chance.randrange(len(data) + 1)]
        elif cut < 0.2:
            data += bytes(chance.randrange(1, 64))
        try:
            state = it.decode(base64.b64encode(data).decode())
        except ValueError:
            continue
        taken += 1
        merged = it.merge(it.merge(state, chance.choice(good)), it.merge(chance.choice(good), state))
        it.encode(merged), it.finish(merged), it.finish(state), it.merge(state, state)
    print(taken)
    """
)


def sketch(count: int) -> hll_sketch:
    made = hll_sketch(12, tgt_hll_type.HLL_8)
    for number in range(count):
        made.update(str(number))
    return made


def united(made: hll_sketch) -> hll_sketch:
    union = hll_union(12)
    union.update(made)
    union.update(made)
    return union.get_result(tgt_hll_type.HLL_8)


def forms() -> list[bytes]:
    """Sketches of all sizes in each form, updated and merged ones."""
    made = [one for count in SIZES for one in (sketch(count), united(sketch(count)))]
    return [form for one in made for form in (one.serialize_compact(), one.serialize_updatable())]


@pytest.mark.parametrize("count", SIZES)
def test_every_form_of_a_sound_sketch_is_taken(count: int) -> None:
    for one in (sketch(count), united(sketch(count))):
        for form in (one.serialize_compact(), one.serialize_updatable()):
            taken = sound(form)
            assert taken is not None
            assert united(hll_sketch.deserialize(taken)).get_estimate() == united(one).get_estimate()


@pytest.mark.parametrize("kind", [tgt_hll_type.HLL_4, tgt_hll_type.HLL_6])
@pytest.mark.parametrize("count", [1, 20, 3000])
def test_other_types_and_sizes_are_refused(kind: tgt_hll_type, count: int) -> None:
    for lg_k, target in [(12, kind), (11, tgt_hll_type.HLL_8), (4, kind)]:
        made = hll_sketch(lg_k, target)
        for number in range(count):
            made.update(str(number))
        assert sound(made.serialize_compact()) is None
        assert sound(made.serialize_updatable()) is None


def test_the_sketch_that_ends_a_process_is_refused() -> None:
    assert sound(base64.b64decode(SEGMENTATION_FAULT)) is None
    with pytest.raises(ValueError, match="not a state"):
        Distinct(name="d", field="x").decode(SEGMENTATION_FAULT)


@pytest.mark.timeout(120)
def test_no_damage_ends_the_process() -> None:
    originals = [base64.b64encode(form).decode() for form in forms()]
    command = [sys.executable, "-c", HARM, str(random.Random(19).randrange(1 << 30)), str(DAMAGED)]
    ended = subprocess.run(command, input=json.dumps(originals), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-2000:])
    # Neither everything refused nor everything taken, or nothing would have been tried.
    assert DAMAGED // 20 < int(ended.stdout) < DAMAGED * 19 // 20


def test_a_coupon_in_a_wrong_place_is_found_all_the_same() -> None:
    made = sketch(20)
    data = made.serialize_updatable()
    slots = [data[start : start + 4] for start in range(12, len(data), 4)]
    turned = data[:12] + b"".join(slots[7:] + slots[:7])
    it = Distinct(name="d", field="x")
    moved = it.decode(base64.b64encode(turned).decode())
    for count in (20, 24, 300, 3000):
        assert it.finish(it.merge(moved, sketch(count))) == it.finish(sketch(count))


@pytest.mark.parametrize(("place", "byte"), [(12, 0xFF), (15, 0x7F), (41, 64), (6, 1), (4, 4), (36, 1), (33, 0xFF)])
def test_registers_beyond_their_bounds_are_refused(place: int, byte: int) -> None:
    data = bytearray(sketch(3000).serialize_compact())
    data[14:16] = b"\xf0\x3f"
    assert sound(bytes(data)) is not None
    data[place] = byte
    if place in (12, 15):
        data[14:16] = b"\xf0\x7f"
    assert sound(bytes(data)) is None
