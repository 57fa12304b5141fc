"""Weight permutations, q's layout both ways, and the output projection, on every framework."""

import numpy as np
import pytest

import megamla
import oracle
from attend_case import AttendCase, bf16_noise
from conftest import make_framework


def noise_bytes(rng, shape):
    """e4m3 codes that are no NaN, and not too large to add up."""
    return rng.integers(0, 0x70, shape).astype(np.uint8) | (rng.integers(0, 2, shape) << 7).astype(np.uint8)


def test_permute_wq_b_moves_rows_and_scales_with_them(fw):
    rng, h = np.random.default_rng(1), 16
    weight, scale = noise_bytes(rng, (h * 512, 48)), noise_bytes(rng, (h * 512, 3))
    got, got_scale = megamla.permute_wq_b(fw.put(weight, "e4m3"), fw.put(scale), n_heads=h)
    order = np.arange(h * 512).reshape(h, 32, 16).swapaxes(0, 1).ravel()
    assert np.array_equal(fw.get(got), weight[order])
    assert np.array_equal(fw.get(got_scale), scale[order])
    assert got.dtype == fw.put(weight, "e4m3").dtype


def test_permute_wo_a_moves_columns(fw):
    rng = np.random.default_rng(2)
    weight, scale = noise_bytes(rng, (2, 8, 4096)), noise_bytes(rng, (2, 8, 128))
    got, got_scale = megamla.permute_wo_a(fw.put(weight, "e4m3"), fw.put(scale))
    assert np.array_equal(fw.get(got),
                          weight.reshape(2, 8, 8, 16, 32).swapaxes(2, 3).reshape(2, 8, 4096))
    assert np.array_equal(fw.get(got_scale),
                          scale.reshape(2, 8, 8, 16).swapaxes(2, 3).reshape(2, 8, 128))
    alone, none = megamla.permute_wo_a(fw.put(weight[0]))
    assert none is None and np.array_equal(fw.get(alone), fw.get(got)[0])


def test_expand_scales_repeats_rows(fw):
    scale = noise_bytes(np.random.default_rng(3), (3, 5))
    assert np.array_equal(fw.get(megamla.expand_scales(fw.put(scale), 70)),
                          np.repeat(scale, 32, axis=0)[:70])


def test_q_goes_to_the_fused_layout_and_back(fw):
    q = bf16_noise(np.random.default_rng(4), (3, 24, 512))
    fused = megamla.q_to_fused(fw.put(q, "bf16"))
    assert np.array_equal(fw.get(fused), oracle.q_fused(q))
    assert np.array_equal(fw.get(megamla.q_to_standard(fused)), q)


def projected(x, x_scale, weight, weight_scale):
    def value(codes, scales):
        return oracle.E4M3_VALUES[codes] * np.repeat(2.0 ** (scales.astype(float) - 127), 32, axis=-1)
    return np.einsum("tgk,gnk->tgn", value(x, x_scale), value(weight, weight_scale))


def assert_projected(got, want):
    oracle.assert_near(oracle.bf16_value(got), want, np.abs(want).max() / 1024, 1.01 / 128, "z")


@pytest.mark.parametrize("t", [0, 1, 5])
def test_projection_of_what_attend_wrote(fw, t):
    rng = np.random.default_rng(5)
    result = AttendCase(6, t=t).run(fw)
    weight, scale = noise_bytes(rng, (2, 16, 4096)), rng.integers(118, 124, (2, 16, 128)).astype(np.uint8)
    w, s = megamla.permute_wo_a(fw.put(weight, "e4m3"), fw.put(scale))
    z = megamla.project(result.out, result.out_scale, w, s)
    bytes_ = np.ascontiguousarray(fw.get(result.out_scale)).view(np.uint8)
    want = projected(fw.get(result.out), bytes_, fw.get(w), fw.get(s))
    assert z.shape == (t, 2, 16)
    if t:
        assert_projected(fw.get(z), want)
        # The same from plain bytes, and from words that are further apart.
        again = megamla.project(result.out, fw.put(bytes_), w, s)
        assert np.array_equal(fw.get(z), fw.get(again))
        planes = np.full((2, 35, t + 6), 0x7F7F7F7F, np.int32)
        planes[:, :32, :t] = fw.get(result.out_scale).transpose(1, 2, 0)
        apart = fw.put(planes)[:, :32, :t].swapaxes(1, 2).swapaxes(0, 1)
        assert np.array_equal(fw.get(z), fw.get(megamla.project(result.out, apart, w, s)))


WRONG = [
    ("permute_wq_b", "n_heads", 16, "weight: rows is 4096"),
    ("permute_wq_b", "weight", np.zeros((8 * 512 + 1, 32), np.uint8), "scale: has 4096 rows, must"),
    ("permute_wq_b", "weight", np.zeros((8 * 512, 32), np.float32), "weight: holds float32"),
    ("permute_wq_b", "n_heads", 12, "n_heads: is 12, must be a multiple of 8"),
    ("permute_wq_b", "scale", np.zeros((9, 1), np.uint8), "scale: has 9 rows, must have 4096"),
    ("permute_wq_b", "weight", "x", "weight: is not a tensor"),
    ("permute_wo_a", "weight", np.zeros((8, 4095), np.uint8), "weight: cols is 4095"),
    ("permute_wo_a", "scale", np.zeros((8, 127), np.uint8), "scale: scale_cols is 127"),
    ("expand_scales", "scale", np.zeros((3, 4), np.uint8), "scale: has 3 rows, must have 2"),
    ("q_to_fused", "q", np.zeros((3, 12, 512), np.uint16), "q: n_heads is 12"),
    ("q_to_fused", "q", np.zeros((3, 8, 500), np.uint16), "q: has 500 in dimension 2"),
    ("project", "x", np.zeros((3, 2, 4000), np.uint8), "x: has 4000 in dimension 2"),
    ("project", "x", np.zeros((3, 17, 4096), np.uint8), "x: has 17 groups"),
    ("project", "x_scale", np.zeros((3, 2, 127), np.uint8), "x_scale: has 127 in dimension 2"),
    ("project", "x_scale", np.zeros((3, 2, 64), np.int32)[:, :, ::2], "x_scale: has a stride of"),
    ("project", "weight", np.zeros((1, 8, 4096), np.uint8), "weight: has 1 in dimension 0"),
    ("project", "weight", np.zeros((2, 12, 4096), np.uint8), "weight_scale|weight: rank is 12"),
    ("project", "weight_scale", np.zeros((2, 8, 128), np.uint16), "weight_scale: holds uint16"),
    ("project", "out", np.zeros((3, 2, 9), np.uint16), "out: has 9 in dimension 2"),
    ("project", "weight_wide", np.zeros((4, 4), np.uint8), "weight_wide: has 2 dimensions"),
    ("project", "weight_wide", np.zeros(8, np.float32), "weight_wide: holds float32"),
]


@pytest.mark.parametrize("function, name, value, message", WRONG)
def test_wrong_arguments_are_named(function, name, value, message):
    good = {
        "permute_wq_b": dict(weight=np.zeros((8 * 512, 32), np.uint8), n_heads=8,
                             scale=np.zeros((8 * 512, 1), np.uint8)),
        "permute_wo_a": dict(weight=np.zeros((8, 4096), np.uint8), scale=np.zeros((8, 128), np.uint8)),
        "expand_scales": dict(scale=np.zeros((2, 4), np.uint8), rows=40),
        "q_to_fused": dict(q=np.zeros((3, 8, 512), np.uint16)),
        "project": dict(x=np.zeros((3, 2, 4096), np.uint8), x_scale=np.zeros((3, 2, 128), np.uint8),
                        weight=np.zeros((2, 8, 4096), np.uint8),
                        weight_scale=np.zeros((2, 8, 128), np.uint8)),
    }[function]
    getattr(megamla, function)(**good)
    with pytest.raises(ValueError, match="^(%s)" % message):
        getattr(megamla, function)(**{**good, name: value})


def test_project_has_implementations_by_name():
    fw = make_framework("numpy")
    rng = np.random.default_rng(8)
    x, x_scale = noise_bytes(rng, (2, 1, 4096)), rng.integers(118, 124, (2, 1, 128)).astype(np.uint8)
    w, s = noise_bytes(rng, (1, 8, 4096)), rng.integers(118, 124, (1, 8, 128)).astype(np.uint8)
    for it in megamla.implementations():
        if it.op == "project" and it.available:
            z = megamla.project(fw.put(x), fw.put(x_scale), fw.put(w), fw.put(s), implementation=it.name)
            assert_projected(z, projected(x, x_scale, w, s))


def projection(rng, t, groups, rank):
    def scales(*shape):
        return rng.integers(118, 124, shape + (128,)).astype(np.uint8)
    return (noise_bytes(rng, (t, groups, 4096)), scales(t, groups),
            noise_bytes(rng, (groups, rank, 4096)), scales(groups, rank))


def has_use_for_wide(fw, weight, scale):
    try:
        return megamla.project_widen(weight, scale) is not None
    except ValueError as error:
        assert str(error).startswith("weight: plan runs ")
        return False


def test_wide_weight_gives_the_same_within_the_tolerance(fw):
    """300 tokens of 8 groups are enough to take it, 3 are not."""
    if fw.device == "cpu":
        pytest.skip("a CPU has no use for a wide weight")
    x, x_scale, weight, scale = projection(np.random.default_rng(9), 300, 8, 264)
    w, s = fw.put(weight, "e4m3"), fw.put(scale)
    if not has_use_for_wide(fw, w, s):
        pytest.skip("this GPU has no use for a wide weight")
    wide = megamla.project_widen(w, s)
    assert wide.shape == (8 * 512 * 8200,)
    for t in (300, 3, 0):
        z = megamla.project(fw.put(x[:t], "e4m3"), fw.put(x_scale[:t]), w, s, weight_wide=wide)
        want = megamla.project(fw.put(x[:t], "e4m3"), fw.put(x_scale[:t]), w, s)
        if t:
            assert_projected(fw.get(z), oracle.bf16_value(fw.get(want)))
    with pytest.raises(ValueError, match="^weight_wide: has 4096 bytes, must have 33587200"):
        megamla.project(fw.put(x, "e4m3"), fw.put(x_scale), w, s, weight_wide=wide[:4096])
    with pytest.raises(ValueError, match="^out: has 4096 bytes, must have 33587200"):
        megamla.project_widen(w, s, out=wide[:4096])
    if not fw.name.startswith("jax"):
        assert megamla.project_widen(w, s, out=wide) is wide


def test_cpu_has_no_use_for_a_wide_weight(cpu_fw):
    x, x_scale, weight, scale = projection(np.random.default_rng(10), 2, 2, 8)
    x, x_scale = cpu_fw.put(x, "e4m3"), cpu_fw.put(x_scale)
    w, s = cpu_fw.put(weight, "e4m3"), cpu_fw.put(scale)
    some = cpu_fw.put(np.zeros(256, np.uint8))
    for out in (None, some):
        with pytest.raises(ValueError, match="^weight: plan runs .*, which has no use for a wide weight"):
            megamla.project_widen(w, s, out=out)
    want = cpu_fw.get(megamla.project(x, x_scale, w, s))
    for wide in (None, some):
        z = megamla.project(x, x_scale, w, s, weight_wide=wide)
        assert np.array_equal(cpu_fw.get(z), want)


@pytest.mark.parametrize("name, value, message", [
    ("weight", np.zeros((17, 8, 4096), np.uint8), "weight_scale: has 2 in dimension 0, must have 17"),
    ("weight", np.zeros((2, 12, 4096), np.uint8), "weight_scale: has 8 in dimension 1, must have 12"),
    ("weight", np.zeros((2, 8, 4000), np.uint8), "weight: has 4000 in dimension 2"),
    ("weight_scale", np.zeros((2, 8, 127), np.uint8), "weight_scale: has 127 in dimension 2"),
    ("out", np.zeros((4, 4), np.uint8), "out: has 2 dimensions"),
])
def test_wrong_arguments_of_widening_are_named(name, value, message):
    good = dict(weight=np.zeros((2, 8, 4096), np.uint8), weight_scale=np.zeros((2, 8, 128), np.uint8))
    with pytest.raises(ValueError, match="^" + message):
        megamla.project_widen(**{**good, name: value})
