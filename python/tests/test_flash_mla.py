"""megamla.flash_mla: the public package's interface, held against the oracle on every framework."""

import inspect

import numpy as np
import pytest

import megamla
import oracle
from attend_case import AttendCase, bf16_noise
from conftest import make_framework
from megamla import flash_mla
from megamla.flash_mla import fused_norm_rope_attn_rope_cast as fused
from test_weights import assert_projected, noise_bytes

# Interface facts: every parameter by position or name, in this order, with these defaults.
FLAGS = ("enable_q_norm, rms_norm_eps, token_positions, is_rope_neox_style, rope_dim, cos_sin_cache, "
         "n_wv_group, num_per_channels, use_tma_aligned_col_major_sf, round_sf, use_packed_ue8m0, ")
SIGNATURES = {
    fused.prefill: FLAGS + "q, kv, indices, sm_scale, d_v=512, attn_sink=None, topk_length=None, "
                           "out=None",
    fused.decode: FLAGS + "q, k_cache, indices_in_kvcache, sm_scale, d_v=512, attn_sink=None, "
                          "topk_length=None, extra_k_cache=None, extra_indices_in_kvcache=None, "
                          "extra_topk_length=None, out=None, mega_num_splits=1, mega_o_accum=None, "
                          "mega_lse_accum=None",
    fused.permute_q_b_proj: "weight_and_sf, h_q, d_q",
    fused.permute_wv_proj: "weight_and_sf, wv_group_size, d_o",
    flash_mla.flash_mla_with_kvcache:
        "q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata, "
        "num_splits=None, softmax_scale=None, causal=False, is_fp8_kvcache=False, indices=None, "
        "attn_sink=None, extra_k_cache=None, extra_indices_in_kvcache=None, topk_length=None, "
        "extra_topk_length=None",
    flash_mla.flash_mla_sparse_fwd:
        "q, kv, indices, sm_scale, d_v=512, attn_sink=None, topk_length=None",
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__name__)
def test_signatures_are_the_public_ones(function):
    found = [p.name if p.default is p.empty else "%s=%r" % (p.name, p.default)
             for p in inspect.signature(function).parameters.values()]
    assert ", ".join(found) == SIGNATURES[function]
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD
               for p in inspect.signature(function).parameters.values())


def flags(case, a):
    """The first eleven arguments."""
    eps = case.keywords.get("q_norm_eps")
    return [eps is not None, eps or 1e-6, a["positions"], False, 64, a["cos_sin"], case.heads // 8, 32,
            True, True, True]


def with_head(tensor):
    return tensor[:, None]


def check(case, fw, out_fp8, out_sf, lse, max_logits=None):
    assert tuple(out_fp8.shape) == (case.t, case.heads // 8, 4096)
    assert tuple(out_sf.shape) == (case.t, case.heads // 8, 32)
    case.check(fw, megamla.AttendResult(out_fp8, out_sf, lse, max_logits))


@pytest.mark.parametrize("t, heads, q_norm", [(1, 64, False), (7, 128, True), (3, 16, False)])
def test_prefill(fw, t, heads, q_norm):
    case = AttendCase(1, t=t, heads=heads, rows=40, q_layout="fused", q_norm=q_norm, widths=(33, 0))
    a = case.arguments(fw)
    out_fp8, out_sf, max_logits, lse = fused.prefill(
        *flags(case, a), a["q"], with_head(a["kv"]), with_head(a["list"]), 0.05, 512, a["sink"],
        a["lens"])
    check(case, fw, out_fp8, out_sf, lse, max_logits)


PAIRS = [("v4", "v4"), ("v41_fp8", "v41_fp8"), ("v41_fp8", "v41_fp4"), ("v41_fp8", None)]


@pytest.mark.parametrize("formats", PAIRS, ids=str)
def test_decode(fw, formats):
    case = AttendCase(2, t=5, heads=64, formats=formats, q_layout="fused", q_norm=formats[0] == "v4",
                      page_tokens=64, compressed_page_tokens=128)
    a = case.arguments(fw)
    extra = {} if formats[1] is None else dict(
        extra_k_cache=with_head_inside(a["compressed_cache"]), extra_topk_length=a["compressed_lens"],
        extra_indices_in_kvcache=a["compressed_list"])
    out_fp8, out_sf, lse = fused.decode(
        *flags(case, a), q=a["q"], k_cache=with_head_inside(a["window_cache"]),
        indices_in_kvcache=a["window_list"], sm_scale=0.05, attn_sink=a["sink"],
        topk_length=a["window_lens"], **extra)
    check(case, fw, out_fp8, out_sf, lse)


def with_head_inside(cache):
    return cache[:, :, None]


def decode_arguments(case, fw):
    a = case.arguments(fw)
    names = ("enable_q_norm rms_norm_eps token_positions is_rope_neox_style rope_dim cos_sin_cache "
             "n_wv_group num_per_channels use_tma_aligned_col_major_sf round_sf use_packed_ue8m0")
    return dict(zip(names.split(), flags(case, a)), q=a["q"],
                k_cache=with_head_inside(a["window_cache"]), indices_in_kvcache=a["window_list"],
                sm_scale=0.05, attn_sink=a["sink"], topk_length=a["window_lens"],
                extra_k_cache=with_head_inside(a["compressed_cache"]),
                extra_indices_in_kvcache=a["compressed_list"], extra_topk_length=a["compressed_lens"])


def test_supplied_results_are_bitwise_those_that_are_made(fw):
    if fw.name.startswith("jax"):
        pytest.skip("JAX's arrays are not written by their users")
    case = AttendCase(3, t=5, q_layout="fused")
    arguments = decode_arguments(case, fw)
    made = fused.decode(**arguments)
    given = fused.decode(**arguments)[:2]
    result = fused.decode(**arguments, out=given)
    assert result[0] is given[0] and result[1] is given[1]
    for one, other in zip(made, result):
        assert np.array_equal(fw.get(one), fw.get(other))
    if hasattr(made[1], "stride"):
        assert made[1].stride() == (1, 256, 8)


@pytest.mark.parametrize("splits", [1, 2, 8])
def test_splits_are_accepted_and_change_nothing(fw, splits):
    case = AttendCase(4, t=3, heads=64, q_layout="fused")
    arguments = decode_arguments(case, fw)
    whole = fused.decode(**arguments)
    split = fused.decode(**arguments, mega_num_splits=splits,
                         mega_o_accum=fw.put(np.zeros((splits, 3, 64, 512), np.float32)),
                         mega_lse_accum=fw.put(np.zeros((splits, 3, 64), np.float32)))
    for one, other in zip(whole, split):
        assert np.array_equal(fw.get(one), fw.get(other))


WRONG_DECODE = [
    (dict(is_rope_neox_style=True), "is_rope_neox_style: is True, must be False"),
    (dict(rope_dim=32), "rope_dim: is 32, must be 64"),
    (dict(num_per_channels=128), "num_per_channels: is 128, must be 32"),
    (dict(use_tma_aligned_col_major_sf=False), "use_tma_aligned_col_major_sf: is False"),
    (dict(round_sf=False), "round_sf: is False"),
    (dict(use_packed_ue8m0=False), "use_packed_ue8m0: is False"),
    (dict(n_wv_group=8), "n_wv_group: is 8, must be 16 heads / 8"),
    (dict(d_v=256), "d_v: is 256, must be 512"), (dict(sm_scale=0.0), "sm_scale: is 0"),
    (dict(token_positions=np.zeros(4, np.int32)), "token_positions: has 4"),
    (dict(cos_sin_cache=np.zeros((2, 32), np.float32)), "cos_sin_cache: has 32"),
    (dict(k_cache=np.zeros((2, 16, 1, 529), np.uint8)), "k_cache: has records of 529"),
    (dict(indices_in_kvcache=np.zeros((3, 2, 4), np.int32)), "indices_in_kvcache: has 2 in dim"),
    (dict(indices_in_kvcache=np.zeros((3, 4), np.int64)), "indices_in_kvcache: holds int64"),
    (dict(topk_length=np.zeros(4, np.int32)), "topk_length: has 4"),
    (dict(extra_k_cache=None), "extra_k_cache: is None"),
    (dict(extra_topk_length=np.zeros(4, np.int32)), "extra_topk_length: has 4"),
    (dict(attn_sink=np.zeros(4, np.float32)), "attn_sink: has 4"),
    (dict(out=(None, np.zeros(3))), "out: must be None or a pair"), (dict(out=3), "out: must be None"),
    (dict(mega_num_splits=0), "mega_num_splits: is 0"),
    (dict(mega_num_splits=2, mega_o_accum=np.zeros(3)), "mega_lse_accum: is None, must be given"),
    (dict(mega_o_accum=np.zeros(3), mega_lse_accum=np.zeros(3)), "mega_o_accum: has shape"),
]


@pytest.mark.parametrize("wrong, message", WRONG_DECODE)
def test_decode_names_what_is_wrong(wrong, message):
    arguments = decode_arguments(AttendCase(5, q_layout="fused"), make_framework("numpy"))
    with pytest.raises(ValueError, match="^" + message):
        fused.decode(**{**arguments, **wrong})


def words_of(fw, scales):
    """ue8m0 bytes [..., rows, 4 n] as int32 words [..., rows, n], contiguous along rows."""
    words = np.ascontiguousarray(scales).view(np.int32)
    return fw.put(np.ascontiguousarray(words.swapaxes(-1, -2))).swapaxes(-1, -2)


@pytest.mark.parametrize("granularity", [32, 128])
def test_permute_q_b_proj(fw, granularity):
    rng, h, k = np.random.default_rng(6), 16, 1024
    weight = noise_bytes(rng, (h * 512, k))
    scales = rng.integers(100, 140, (h * 512, k // granularity)).astype(np.uint8)
    moved, sf = fused.permute_q_b_proj((fw.put(weight, "e4m3"), words_of(fw, scales)), h, 512)
    order = np.arange(h * 512).reshape(h, 32, 16).swapaxes(0, 1).ravel()
    assert np.array_equal(fw.get(moved), weight[order])
    assert np.array_equal(np.ascontiguousarray(fw.get(sf)).view(np.uint8), scales[order])
    if hasattr(sf, "stride"):
        assert sf.stride() == (1, h * 512)


@pytest.mark.parametrize("granularity", [32, 128])
def test_permute_wv_proj_keeps_the_product(fw, granularity):
    rng, n = np.random.default_rng(7), 8
    weight = noise_bytes(rng, (2, n, 4096))
    scales = rng.integers(118, 124, (2, n, 4096 // granularity)).astype(np.uint8)
    moved, sf = fused.permute_wv_proj((fw.put(weight, "e4m3"), words_of(fw, scales)), 8, 512)
    assert tuple(sf.shape) == (2, n, 32)
    if hasattr(sf, "stride"):
        assert sf.stride()[1] == 1
    case = AttendCase(8, t=3, q_layout="fused")
    out_fp8, out_sf, _ = fused.decode(**decode_arguments(case, fw))
    words = np.ascontiguousarray(fw.get(sf)).view(np.uint8)
    z = megamla.project(out_fp8, out_sf, moved, fw.put(words))
    # The product of the unpermuted: O in standard order with the weight as it came.
    o = oracle.value_of_output("fp8_permuted", fw.get(out_fp8), fw.get(out_sf)).reshape(3, 2, 4096)
    fine = np.repeat(scales, granularity // 32, axis=-1)
    value = oracle.E4M3_VALUES[weight] * np.repeat(2.0 ** (fine.astype(float) - 127), 32, axis=-1)
    assert_projected(fw.get(z), np.einsum("tgk,gnk->tgn", o, value))


def test_permutations_name_what_is_wrong():
    w, sf = np.zeros((8 * 512, 1024), np.uint8), np.zeros((8 * 512, 8), np.int32)
    for call, message in [
            (lambda: fused.permute_q_b_proj((w, sf), 8, 256), "d_q: is 256"),
            (lambda: fused.permute_q_b_proj((w, sf[:, :5]), 8, 512), "weight_and_sf: sf has 5 columns"),
            (lambda: fused.permute_q_b_proj((w, sf[:9]), 8, 512), "weight_and_sf: sf has 9 rows"),
            (lambda: fused.permute_q_b_proj((w[0], sf), 8, 512), "weight_and_sf: has 1 dim"),
            (lambda: fused.permute_wv_proj((w, sf), 8, 512), "weight_and_sf: has 2 dim"),
            (lambda: fused.permute_wv_proj((w[None], sf[None]), 4, 512), "wv_group_size: is 4"),
            (lambda: fused.permute_wv_proj((w[None], sf[None]), 8, 512), "weight_and_sf: weight has")]:
        with pytest.raises(ValueError, match="^" + message):
            call()


def unrotated(case):
    """The oracle's answer when nothing is turned."""
    table = np.concatenate([np.ones((20, 32)), np.zeros((20, 32))], 1).astype(np.float32)
    return oracle.attend(case.q_standard, case.positions, table, case.rows_of_token, 0.05, case.sink)


@pytest.mark.parametrize("per_token", [False, True])
def test_flash_mla_with_kvcache(fw, per_token):
    b, s_q = 3, 2
    case = AttendCase(9, t=b * s_q, out_form="bf16", lens=per_token)
    a = case.arguments(fw)
    meta, none = flash_mla.get_mla_metadata(None, 4, 1, h_q=16)
    assert none is None and isinstance(meta, flash_mla.FlashMLASchedMeta)
    if per_token:
        lens = dict(topk_length=a["window_lens"].reshape(b, s_q),
                    extra_topk_length=a["compressed_lens"].reshape(b, s_q))
    else:  # one length a request: all 9 entries
        lens = dict(topk_length=fw.put(np.full(b, 9, np.int32)))
    out, lse = flash_mla.flash_mla_with_kvcache(
        a["q"].reshape(b, s_q, 16, 512), with_head_inside(a["window_cache"]), None, None, 512, meta,
        softmax_scale=0.05, is_fp8_kvcache=True, indices=a["window_list"].reshape(b, s_q, -1),
        attn_sink=a["sink"], extra_k_cache=with_head_inside(a["compressed_cache"]),
        extra_indices_in_kvcache=a["compressed_list"].reshape(b, s_q, -1), **lens)
    want, want_lse, _ = unrotated(case)
    assert tuple(out.shape) == (b, s_q, 16, 512) and tuple(lse.shape) == (b, 16, s_q)
    oracle.assert_output("bf16", fw.get(out).reshape(b * s_q, 16, 512), None, want,
                         case.probability_error(fw))
    oracle.assert_lse(fw.get(lse).swapaxes(1, 2).reshape(b * s_q, 16), want_lse)


def test_flash_mla_sparse_fwd(fw):
    case = AttendCase(10, t=4, rows=40, out_form="bf16")
    a = case.arguments(fw)
    out, max_logits, lse = flash_mla.flash_mla_sparse_fwd(
        a["q"], with_head(a["kv"]), with_head(a["list"]), 0.05, attn_sink=a["sink"],
        topk_length=a["lens"])
    want, want_lse, most = unrotated(case)
    oracle.assert_output("bf16", fw.get(out), None, want, case.probability_error(fw))
    oracle.assert_lse(fw.get(lse), want_lse)
    oracle.assert_lse(fw.get(max_logits), most, "max_logits")


WRONG_UNFUSED = [
    (dict(head_dim_v=576), "head_dim_v: is 576, must be 512"), (dict(causal=True), "causal: is True"),
    (dict(is_fp8_kvcache=False), "is_fp8_kvcache: is False, must be True"),
    (dict(num_splits=2), "num_splits: is 2"), (dict(indices=None), "indices: is None"),
    (dict(q=np.zeros((2, 16, 512), np.uint16)), "q: has 3 dimensions, must have 4"),
    (dict(indices=np.zeros((2, 2, 4), np.int32)), "indices: has shape"),
    (dict(topk_length=np.zeros(3, np.int32)), "topk_length: has shape"),
    (dict(k_cache=np.zeros((2, 16, 1, 656), np.uint8)), "k_cache: has records of 656 bytes"),
    (dict(softmax_scale=-1.0), "softmax_scale: is -1"),
]


@pytest.mark.parametrize("wrong, message", WRONG_UNFUSED)
def test_with_kvcache_names_what_is_wrong(wrong, message):
    rng = np.random.default_rng(11)
    good = dict(q=bf16_noise(rng, (2, 1, 16, 512)), k_cache=np.zeros((2, 16, 1, 528), np.uint8),
                block_table=None, cache_seqlens=None, head_dim_v=512, is_fp8_kvcache=True,
                tile_scheduler_metadata=None, indices=np.zeros((2, 1, 4), np.int32))
    flash_mla.flash_mla_with_kvcache(**good)
    with pytest.raises(ValueError, match="^" + message):
        flash_mla.flash_mla_with_kvcache(**{**good, **wrong})
