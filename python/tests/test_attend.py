"""attend_paged, attend_rows, merge_lse against the oracle, on every framework."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import megamla
import oracle
from attend_case import AttendCase, bf16_noise, rounds_probabilities
from conftest import MAKERS, installed, make_framework

FORMATS = [("v41_fp8", "v41_fp4"), ("v41_fp8", "v41_fp8"), ("v4", "v4"), ("v41_fp4", "v41_fp4"),
           ("v4", None), ("v41_fp8", None), ("v41_fp4", None)]
FORMS = ["fp8_permuted", "fp8", "fp8_128", "bf16"]
HERE = [name for name in MAKERS
        if not name.endswith("cuda") and installed(name.partition("-")[0])]


@pytest.mark.parametrize("form", FORMS)
def test_paged_call_gives_what_the_oracle_gives(fw, form):
    AttendCase(1, t=5, out_form=form).run(fw)


@pytest.mark.parametrize("form", FORMS)
def test_rows_call_gives_what_the_oracle_gives(fw, form):
    AttendCase(2, t=5, rows=40, out_form=form, q_layout="fused").run(fw)


@pytest.mark.parametrize("formats", FORMATS, ids=str)
def test_every_pair_of_formats(fw, formats):
    AttendCase(3, formats=formats, q_norm=formats[0] == "v4").run(fw)


@pytest.mark.parametrize("t", [0, 1, 2, 7])
def test_any_number_of_tokens(fw, t):
    AttendCase(4, t=t, heads=8).run(fw)


def draws():
    return dict(
        seed=st.integers(0, 2 ** 32), name=st.sampled_from(HERE), t=st.integers(0, 6),
        heads=st.integers(1, 16).map(lambda n: 8 * n), formats=st.sampled_from(FORMATS),
        pages=st.integers(1, 3), page_tokens=st.sampled_from([1, 2, 16, 61, 64]),
        widths=st.tuples(st.integers(1, 40), st.integers(1, 40)), form=st.sampled_from(FORMS),
        layout=st.sampled_from(["standard", "fused"]), q_norm=st.booleans(), sink=st.booleans(),
        lens=st.booleans(), max_logits=st.booleans(), rows=st.none() | st.integers(1, 50))


@settings(max_examples=120, deadline=None, print_blob=True)
@given(**draws())
def test_shapes_formats_and_options(seed, name, t, heads, formats, pages, page_tokens, widths, form,
                                    layout, q_norm, sink, lens, max_logits, rows):
    AttendCase(seed, t, heads, formats, pages, page_tokens, None, widths, rows, form, layout, q_norm,
               sink, lens, max_logits).run(make_framework(name))


def padded(fw, array, more, axis, kind=None):
    """The same elements with `more` in between along an axis, and the rest of memory NaN."""
    shape = list(array.shape)
    shape[axis] += more
    base = np.full(shape, np.array(-1).astype(array.dtype))
    place = tuple(slice(0, n) for n in array.shape)
    base[place] = array
    return fw.put(base, kind)[place]


@settings(max_examples=40, deadline=None, print_blob=True)
@given(seed=st.integers(0, 2 ** 32), name=st.sampled_from(HERE), q_gap=st.integers(0, 3),
       list_gap=st.integers(0, 5), page_gap=st.integers(0, 4), t=st.integers(1, 5))
def test_strides(seed, name, q_gap, list_gap, page_gap, t):
    fw = make_framework(name)
    case = AttendCase(seed, t=t, heads=8, page_tokens=16)
    pages = case.window.bytes.reshape(3, -1)  # 8448 bytes, a multiple of 16
    wide = padded(fw, pages, 16 * page_gap, 1)
    arguments = {**case.arguments(fw), **case.keywords,
                 "q": padded(fw, case.q, q_gap, 1, "bf16"),
                 "window_list": padded(fw, case.window_list, list_gap, 1),
                 "compressed_list": padded(fw, case.compressed_list, list_gap, 1),
                 "window_cache": wide, "window_format": "v41_fp8", "window_page_tokens": 16}
    case.check(fw, megamla.attend_paged(**arguments))


@settings(max_examples=30, deadline=None, print_blob=True)
@given(seed=st.integers(0, 2 ** 32), q=st.sampled_from(["u2", "i2"]), cache=st.sampled_from(["u1", "i1"]),
       list_=st.sampled_from(["i4", "u4"]), out=st.sampled_from(["u1", "i1"]), invariant=st.booleans())
def test_bits_may_come_in_any_integer_of_their_size(seed, q, cache, list_, out, invariant):
    fw, case = make_framework("numpy"), AttendCase(seed, t=2, heads=8)
    a = case.arguments(fw)
    made = case.run(fw, batch_invariant=invariant)
    a.update(q=a["q"].view(q), window_cache=a["window_cache"].view(cache),
             window_list=a["window_list"].view(list_))
    memory = megamla._frameworks.framework_of(made.out).empty(made.out, made.out.shape, "u8")
    result = megamla.attend_paged(**a, **case.keywords, out=memory.view(out),
                                  out_scale=made.out_scale, batch_invariant=invariant)
    assert np.array_equal(result.out.view("u1"), made.out)


def test_pytorch_s_own_dtypes_and_bits_are_the_same(torch):
    fw, case = make_framework("torch-cpu"), AttendCase(19, t=3)
    a = case.arguments(fw)
    want = fw.get(case.run(fw).out)
    bits = dict(a, q=a["q"].view(torch.int16), window_cache=a["window_cache"].view(torch.int8),
                compressed_cache=a["compressed_cache"].view(torch.float8_e4m3fn))
    assert np.array_equal(fw.get(megamla.attend_paged(**bits, **case.keywords).out), want)
    assert megamla.attend_paged(**a, **case.keywords).out.dtype == torch.float8_e4m3fn


def test_strides_on_every_framework(fw):
    case = AttendCase(17, t=4, page_tokens=16)
    arguments = {**case.arguments(fw), **case.keywords, "q": padded(fw, case.q, 2, 1, "bf16"),
                 "window_list": padded(fw, case.window_list, 3, 1), "window_format": "v41_fp8",
                 "window_cache": padded(fw, case.window.bytes.reshape(3, -1), 64, 1),
                 "window_page_tokens": 16}
    case.check(fw, megamla.attend_paged(**arguments))


def test_rows_may_be_apart(fw):
    case = AttendCase(20, t=3, rows=30)
    base = np.full((30, 528), 0x7FFF, np.uint16)
    base[:, :512] = case.kv
    case.run(fw, kv=fw.put(base, "bf16")[:, :512], list=padded(fw, case.list, 2, 1))


def test_a_gpu_counts_positions_outside_the_table(fw):
    if fw.device == "cpu" or fw.name.startswith("jax"):
        pytest.skip("a CPU raises, and JAX's arrays are not written by their users")
    case = AttendCase(9, t=3)
    case.positions[1] = 20
    faults = fw.put(np.array([5], np.int32))
    result = case.function(**case.arguments(fw), **case.keywords, n_faults=faults)
    lse = fw.get(result.lse)
    assert fw.get(faults)[0] == 6
    assert np.all(np.isnan(lse[1])) and not np.any(np.isnan(lse[[0, 2]]))


def test_a_workspace_may_be_given(fw):
    case = AttendCase(18, t=2)
    made = megamla._frameworks.framework_of(fw.put(case.q))
    memory = made.empty(fw.put(case.q), (64 << 20,), "u8")  # aligned to 64, as it has to be
    case.run(fw, workspace=memory)
    if fw.name in ("numpy", "torch-cpu"):  # JAX copies a slice
        with pytest.raises(ValueError, match="^workspace: is at 0x"):
            case.run(fw, workspace=memory[1:])


def test_cache_forms_give_the_same_bits(cpu_fw):
    case = AttendCase(5)
    forms = {"three": {}, "four": {"window_cache": cpu_fw.put(case.window.bytes[:, :, None])},
             "two": {"window_cache": cpu_fw.put(case.window.bytes.reshape(3, -1)),
                     "window_format": "v41_fp8", "window_page_tokens": 16}}
    outs = [cpu_fw.get(case.run(cpu_fw, **more).out) for more in forms.values()]
    assert all(np.array_equal(outs[0], out) for out in outs[1:])


def test_given_results_are_written_and_returned(fw):
    if fw.name.startswith("jax"):
        pytest.skip("JAX's arrays are not written by their users")
    case = AttendCase(6, t=5)
    made = case.run(fw)
    words = fw.put(np.full((2, 35, 11), -1, np.int32))[:, :32]  # token stride 1, room for 11
    words = words.permute(2, 0, 1) if hasattr(words, "permute") else words.transpose(2, 0, 1)
    out = megamla.attend_paged(**case.arguments(fw), **case.keywords).out
    lse = fw.put(np.zeros((5, 16), np.float32))
    result = case.run(fw, out=out, out_scale=words[:5], lse=lse)
    assert result.out is out and result.lse is lse
    assert np.array_equal(fw.get(result.out), fw.get(made.out))
    assert np.array_equal(fw.get(result.out_scale), fw.get(made.out_scale))
    assert np.all(fw.get(words)[5:] == -1), "padding is not written"


def test_pytorch_s_tensors_take_the_short_way(torch, monkeypatch):
    """binding_fast.c, which hands what it does not take to the ordinary one without a word."""
    fw = make_framework("torch-cpu")
    paged, rows = AttendCase(21), AttendCase(22, rows=30)
    made = megamla._frameworks.framework_of(fw.put(paged.q, "bf16"))
    if made.fast_paged is None:
        pytest.skip("this PyTorch does not show its tensors")

    def refuse(*args):
        raise AssertionError("the long way")

    monkeypatch.setattr(megamla._attend, "run", refuse)
    monkeypatch.setattr(megamla._cache, "run", refuse)
    paged.run(fw)
    rows.run(fw)
    at = torch.arange(4)
    for more in ({}, dict(overlap=True, ratio=2)):
        megamla.kv_insert(torch.zeros(4, 512, dtype=torch.bfloat16), at, at, torch.zeros(8, 64),
                          torch.zeros(1, 16, 528, dtype=torch.uint8), **more)
    with pytest.raises(AssertionError, match="the long way"):
        paged.run(fw, cos_sin=paged.cos_sin)  # NumPy's


def test_frameworks_may_be_mixed(torch):
    """Conveniences, such as a table that is NumPy's; nothing is copied then either."""
    case, fw = AttendCase(7), make_framework("torch-cpu")
    case.run(fw, cos_sin=case.cos_sin, window_list=case.window_list)


def test_tokens_of_no_key_give_zero(cpu_fw):
    case = AttendCase(8, t=2)
    case.window_lens[:] = case.compressed_lens[:] = 0
    case.rows_of_token = [np.zeros((0, 512))] * 2
    result = case.run(cpu_fw)
    assert np.all(cpu_fw.get(result.out) == 0)
    assert np.all(np.isposinf(cpu_fw.get(result.lse)))
    assert np.all(np.ascontiguousarray(cpu_fw.get(result.out_scale)).view(np.uint8) == 105)


def test_position_outside_the_table_is_told_after_the_rest_is_done(cpu_fw):
    if cpu_fw.name.startswith("jax"):
        pytest.skip("JAX's arrays are not written by their users")
    case = AttendCase(9, t=3)
    whole = case.run(cpu_fw)
    case.positions[1] = 20
    faults = cpu_fw.put(np.array([5], np.int32))
    with pytest.raises(ValueError, match="^positions: "):
        case.function(**case.arguments(cpu_fw), **case.keywords, out=whole.out,
                      out_scale=whole.out_scale, lse=whole.lse, n_faults=faults)
    assert cpu_fw.get(faults)[0] == 6
    assert np.all(np.isnan(cpu_fw.get(whole.lse)[1])) and not np.any(np.isnan(cpu_fw.get(whole.lse)[0]))


@pytest.mark.parametrize("form", FORMS)
def test_parts_merge_into_the_whole(fw, form):
    case = AttendCase(10, t=4, rows=50, widths=(24, 0), lens=False, out_form="bf16", sink=True)
    case.list[0] = -1        # a token without a key
    case.list[1, :10] = -1   # one whose keys are all in the second part
    arguments = case.arguments(fw)
    for name in ("sink", "list", "lens"):
        del arguments[name]
    a, b = (megamla.attend_rows(**arguments, **dict(case.keywords, max_logits=False),
                                list=fw.put(part)) for part in (case.list[:, :10], case.list[:, 10:]))
    result = megamla.merge_lse(a.out, a.lse, b.out, b.lse, sink=fw.put(case.sink), out_form=form)
    want, lse = oracle.merge(fw.get(a.out), fw.get(a.lse), fw.get(b.out), fw.get(b.lse), case.sink)
    scale = None if result.out_scale is None else fw.get(result.out_scale)
    oracle.assert_output(form, fw.get(result.out), scale, want)
    oracle.assert_lse(fw.get(result.lse), lse)
    assert result.max_logits is None


def test_implementations_by_name_agree(cpu_fw):
    names = [i.name for i in megamla.implementations() if i.op == "attend" and i.available]
    assert "reference" in names
    for name in names:
        AttendCase(11).run(cpu_fw, implementation=name)


def test_calls_of_one_shape_share_a_plan(cpu_fw):
    widths = (17, 19 + len(cpu_fw.name))  # a shape that no other test has
    AttendCase(12, t=6, heads=40, widths=widths).run(cpu_fw)
    before = megamla.plan_counts()
    AttendCase(13, t=6, heads=40, widths=widths).run(cpu_fw)
    AttendCase(14, t=7, heads=40, widths=widths).run(cpu_fw)  # within the same power of two
    assert megamla.plan_counts() == before
    AttendCase(15, t=9, heads=40, widths=widths).run(cpu_fw)
    assert megamla.plan_counts().created == before.created + 1


def test_more_shapes_than_are_kept_still_run():
    fw = make_framework("numpy")
    for width in range(1, 300):
        AttendCase(width, t=1, heads=8, widths=(width, 1), page_tokens=1, pages=1,
                   formats=("v41_fp8", None)).run(fw)
    assert megamla.plan_counts().kept == 256


def test_threads_may_call_at_once():
    from concurrent.futures import ThreadPoolExecutor

    fw = make_framework("torch-cpu" if installed("torch") else "numpy")
    cases = [AttendCase(seed, t=1 + seed % 5) for seed in range(24)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda case: case.run(fw), cases * 3))


def test_results_do_not_depend_on_the_number_of_threads(cpu_fw):
    case = AttendCase(16, t=6, heads=32)
    try:
        megamla.set_threads(1)
        one = cpu_fw.get(case.run(cpu_fw).out)
        megamla.set_threads(2)
        assert np.array_equal(one, cpu_fw.get(case.run(cpu_fw).out))
    finally:
        megamla.set_threads(0)


def test_noise_is_not_all_zero():
    """The oracle's own: inputs that would let a wrong answer pass."""
    assert np.abs(oracle.bf16_value(bf16_noise(np.random.default_rng(0), (4, 512)))).mean() > 0.5


@pytest.mark.parametrize("rows", [None, 40])
def test_rounded_probabilities_have_a_bound_of_their_own(rows):
    """The oracle's own: rounding them to bf16, and nothing else, goes past the bound of those who do
    not, and stays within its own; rounding them to three bits less does not."""
    case = AttendCase(1 if rows is None else 2, t=5, rows=rows, out_form="bf16")
    want, more = case.expected()[0], oracle.probability_error(case.rows_of_token)

    def check(rounded, more):
        out = case.expected(rounded=rounded)[0]
        oracle.assert_output("bf16", oracle.bf16_bits(out), None, want, more)

    def bf16(p):
        return oracle.bf16_value(oracle.bf16_bits(p))

    def five_bits(p):
        mantissa, exponent = np.frexp(p)
        return np.round(mantissa * 32) / 32 * 2.0 ** exponent

    check(lambda p: p, 0.0)
    check(bf16, more)
    for rounded, allowed in ((bf16, 0.0), (five_bits, more)):
        with pytest.raises(AssertionError, match="^out: off by"):
            check(rounded, allowed)


def test_an_error_that_is_small_everywhere_is_found():
    """The oracle's own: no element of these is beyond its bound."""
    case = AttendCase(1, t=5, out_form="bf16")
    want, more = case.expected()[0], oracle.probability_error(case.rows_of_token)
    rng = np.random.default_rng(0)
    noisy = want + more * rng.uniform(-0.5, 0.5, want.shape)
    with pytest.raises(AssertionError, match="^out: cosine distance"):
        oracle.assert_output("bf16", oracle.bf16_bits(noisy), None, want, more)


def test_only_names_of_bf16_have_rounded_probabilities():
    assert not rounds_probabilities("cpu") and not rounds_probabilities("cpu", "reference")
    if megamla.supports(8, device="cuda"):
        assert rounds_probabilities("cuda")
