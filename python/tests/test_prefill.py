"""attend_prefill against the oracle and against its own steps, by both routes, on every framework."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import megamla
from conftest import make_framework
from prefill_case import PrefillCase
from test_attend import FORMATS, FORMS, HERE, padded

I32, I64 = np.int32, np.int64
ROUTES = ["paged", "workspace"]


def run(case, fw, way, /, **more):
    return case.run(fw, **{**(case.by_workspace() if way == "workspace" else dict(route=way)), **more})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("route", ROUTES + ["auto"])
def test_both_routes_give_what_the_oracle_gives(fw, route, form):
    case = PrefillCase(1, out_form=form)
    run(case, fw, route)


@pytest.mark.parametrize("formats", FORMATS, ids=str)
@pytest.mark.parametrize("route", ROUTES)
def test_every_pair_of_formats(fw, route, formats):
    run(PrefillCase(2, formats=formats, ratio=1), fw, route)


def draws():
    return dict(
        seed=st.integers(0, 2 ** 32), name=st.sampled_from(HERE), route=st.sampled_from(ROUTES),
        lens=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=4),
        padding=st.integers(0, 3), heads=st.integers(1, 4).map(lambda n: 8 * n),
        window=st.integers(1, 20), topk=st.integers(1, 20), formats=st.sampled_from(FORMATS),
        page_tokens=st.tuples(*[st.sampled_from([1, 2, 16, 61])] * 2), ratio=st.integers(1, 2),
        form=st.sampled_from(FORMS), layout=st.sampled_from(["standard", "fused"]), sink=st.booleans())


@settings(max_examples=60, deadline=None, print_blob=True)
@given(**draws())
def test_lengths_formats_and_options(seed, name, route, lens, padding, heads, window, topk, formats,
                                     page_tokens, ratio, form, layout, sink):
    case = PrefillCase(seed, lens, padding, heads, window, topk, formats, page_tokens, ratio, form,
                       layout, sink)
    run(case, make_framework(name), route)


def same_bits(fw, a, b):
    return all((x is None and y is None) or np.array_equal(fw.get(x), fw.get(y)) for x, y in zip(a, b))


def test_the_caches_give_the_bits_of_their_steps(cpu_fw):
    case = PrefillCase(3)
    a = case.arguments(cpu_fw)
    pages = dict(page_tokens=16, n_pages=len(case.window.bytes))
    window = megamla.window_list(a["query_start"], a["seq_lens"], a["window_table"], **pages,
                                 window=case.width, n_tokens=len(case.request))
    pages = dict(page_tokens=5, n_pages=len(case.compressed.bytes))
    picks = megamla.compressed_list(a["topk"], a["request"], a["compressed_table"], **pages)
    common = ("q", "positions", "cos_sin", "sink", "window_cache", "compressed_cache",
              "compressed_format", "compressed_page_tokens")
    steps = megamla.attend_paged(**{name: a[name] for name in common if name in a}, scale=0.05,
                                 window_list=window.list, window_lens=window.lens,
                                 compressed_list=picks.list, compressed_lens=picks.lens,
                                 max_logits=True)
    assert same_bits(cpu_fw, steps, run(case, cpu_fw, "paged"))
    # A CPU always takes them, whatever there is room for.
    assert same_bits(cpu_fw, steps, run(case, cpu_fw, "workspace", route="auto"))


def test_the_workspace_gives_the_bits_of_its_steps(cpu_fw):
    case = PrefillCase(18)
    a = case.arguments(cpu_fw)
    chunk, = megamla.prefill_chunks(case.query_lens, case.seq_lens, ratio=2, max_model_tokens=99,
                                    max_batch_tokens=99, window=case.width)
    assert (chunk.n, chunk.m) == (case.n, case.m)
    out = None
    if not cpu_fw.name.startswith("jax"):  # JAX's arrays are not written by their users
        out = cpu_fw.put(np.full((3, chunk.m, 512), 0x7FFF, np.uint16), "bf16")
    records = megamla.kv_gather(a["compressed_cache"], a["compressed_table"], a["seq_lens"], ratio=2,
                                rows=chunk.m, out=out, format=a.get("compressed_format"),
                                page_tokens=a.get("compressed_page_tokens", 0))
    rows = megamla.kv_gather(a["window_cache"], a["window_table"], a["seq_lens"], window=case.width,
                             query_start=a["query_start"], rows=chunk.m, offset=chunk.n, out=out)
    if out is None:
        rows = cpu_fw.put(np.concatenate([cpu_fw.get(records)[:, :chunk.n], cpu_fw.get(rows)[:, chunk.n:]],
                                         1), "bf16")
    combined = megamla.combined_list(a["topk"], a["query_start"], a["seq_lens"], ratio=2, topk_limit=5,
                                     request_rows=chunk.m, window_offset=chunk.n, window=case.width,
                                     width=5 + case.width)
    steps = megamla.attend_rows(a["q"], a["positions"], a["cos_sin"], rows.reshape(-1, 512),
                                combined.list, combined.lens, scale=0.05, sink=a["sink"],
                                max_logits=True)
    assert same_bits(cpu_fw, steps, run(case, cpu_fw, "workspace"))


def test_a_page_that_is_none_tells_the_routes_apart(fw):
    """From the caches its positions are no keys, by the workspace they are rows of 0."""
    case = PrefillCase(4, lens=((2, 9),), padding=0, formats=("v41_fp8", None), window=4,
                       page_tokens=(1, 1))
    case.window_table[0, 8] = -1  # position 8; the tokens see 6 .. 9 and 7 .. 10
    whole = case.rows_of_token
    case.rows_of_token = [np.delete(rows, at, 0) for rows, at in zip(whole, (2, 1))]
    run(case, fw, "paged")
    run(case, fw, "workspace", route="paged")
    case.rows_of_token = [rows.copy() for rows in whole]
    case.rows_of_token[0][2] = case.rows_of_token[1][1] = 0
    run(case, fw, "workspace")


def test_auto_needs_lengths_where_it_has_a_choice(fw):
    case = PrefillCase(5)
    if fw.device == "cpu":
        run(case, fw, "auto", max_rows=case.max_rows)
        return
    with pytest.raises(ValueError, match="^host_query_lens: "):
        run(case, fw, "auto", max_rows=case.max_rows)
    run(case, fw, "auto", max_rows=case.max_rows, batch_invariant=True)
    run(case, fw, "workspace", route="auto")


def test_a_workspace_of_one_row_less_is_refused():
    case, fw = PrefillCase(6), make_framework("numpy")
    run(case, fw, "workspace", max_rows=case.max_rows)
    message = "^max_rows: is %d, must be at least 3 requests of %d rows" % (case.max_rows - 1, case.m)
    with pytest.raises(ValueError, match=message):
        run(case, fw, "workspace", max_rows=case.max_rows - 1)
    run(case, fw, "workspace", max_rows=case.max_rows - 1, route="auto")


def test_lengths_may_be_anything_of_the_host(cpu_fw):
    case = PrefillCase(7)
    whole = run(case, cpu_fw, "workspace")
    for kind in (list, tuple, cpu_fw.put, lambda lens: lens.astype(I64)):
        result = run(case, cpu_fw, "workspace", host_query_lens=kind(case.query_lens),
                     host_seq_lens=kind(case.seq_lens))
        assert same_bits(cpu_fw, whole, result)


def test_lengths_of_a_gpu_are_not_fetched(fw):
    if fw.device == "cpu" or fw.name.startswith("jax"):
        pytest.skip("NumPy takes lengths of the host, and JAX's from anywhere")
    case = PrefillCase(8)
    with pytest.raises(ValueError, match="^host_seq_lens: is no int32 array in host memory"):
        run(case, fw, "workspace", host_seq_lens=fw.put(case.seq_lens))


@pytest.mark.parametrize("route", ROUTES)
def test_given_results_are_written_and_returned(fw, route):
    if fw.name.startswith("jax"):
        pytest.skip("JAX's arrays are not written by their users")
    case = PrefillCase(9, out_form="fp8")
    made = run(case, fw, route)
    again = PrefillCase(10, out_form="fp8")
    result = run(again, fw, route, out=made.out, out_scale=made.out_scale, lse=made.lse,
                 max_logits=made.max_logits)
    assert all(a is b for a, b in zip(result, made))
    bare = again.function(**again.arguments(fw), **dict(again.keywords, max_logits=False), lse=False)
    assert bare.lse is None and bare.max_logits is None


@pytest.mark.parametrize("route", ROUTES)
def test_tables_and_picks_may_have_strides(fw, route):
    case = PrefillCase(11)
    run(case, fw, route, q=padded(fw, case.q, 2, 1, "bf16"), topk=padded(fw, case.topk, 3, 1),
        window_table=padded(fw, case.window_table, 1, 1),
        compressed_table=padded(fw, case.compressed_table, 2, 1))


def test_a_workspace_may_be_given(fw):
    case = PrefillCase(12)
    made = megamla._frameworks.framework_of(fw.put(case.q))
    memory = made.empty(fw.put(case.q), (64 << 20,), "u8")
    for route in ROUTES:
        run(case, fw, route, workspace=memory)


def test_lengths_of_any_size_share_a_plan(cpu_fw):
    heads = 48 + 8 * HERE.index(cpu_fw.name)  # a shape that no other test has
    def runs(seed, lens):
        case = PrefillCase(seed, lens, 0, heads)
        for name in ("window_table", "compressed_table"):
            table = np.full((2, 20), -1, I32)
            table[:, :getattr(case, name).shape[1]] = getattr(case, name)
            setattr(case, name, table)
        for cache in (case.window, case.compressed):
            more = np.full((40 - len(cache.bytes), *cache.bytes.shape[1:]), 0xFF, np.uint8)
            cache.bytes = np.concatenate([cache.bytes, more])
        case.cos_sin = np.concatenate([case.cos_sin, np.zeros((99 - len(case.cos_sin), 64), np.float32)])
        for route in ROUTES:
            run(case, cpu_fw, route, max_rows=200)

    runs(13, ((3, 20), (1, 0)))
    before = megamla.plan_counts()
    runs(14, ((2, 40), (2, 60)))
    assert megamla.plan_counts() == before


@pytest.mark.parametrize("route", ROUTES)
def test_position_outside_the_table_is_told_and_counted(cpu_fw, route):
    if cpu_fw.name.startswith("jax"):
        pytest.skip("JAX's arrays are not written by their users")
    case = PrefillCase(15)
    case.positions[1] = len(case.cos_sin)
    faults = cpu_fw.put(np.array([5], I32))
    with pytest.raises(ValueError, match="^positions: "):
        run(case, cpu_fw, route, n_faults=faults)
    assert cpu_fw.get(faults)[0] == 6


def z(*shape, dtype=I32):
    return np.zeros(shape, dtype)


# The case has 8 tokens, padding included, 3 requests, tables of 4 and 5 columns.
WRONG = [
    ("q", None, "q: is not a tensor"),
    ("q", z(8, 12, 512, dtype=np.uint16), "sink: has 16 in dimension 0, must have 12"),
    ("positions", z(7), "positions: has 7 in dimension 0, must have 8, the tokens of q"),
    ("query_start", None, "query_start: is None, must be a tensor"),
    ("query_start", z(3), "query_start: has 3 in dimension 0, must have 4, one more than the requests"),
    ("seq_lens", z(3, dtype=I64), "seq_lens: holds int64, must hold int32"),
    ("window_cache", None, "window_cache: is None, must be a tensor"),
    ("window_cache", z(3, 16, 527, dtype=np.uint8), "window_cache: has records of 527 bytes"),
    ("window_table", None, "window_table: is None, must be a tensor"),
    ("window_table", z(3, 0), "window_table: window_table_width is 0, must be 1"),
    ("window_table", z(2, 4), "window_table: has 2 in dimension 0, must have 3, the requests"),
    ("window_table", z(3, 8)[:, ::2], "window_table: has a stride of 2 in dimension 1"),
    ("window_format", "v5", "window_format: is 'v5', must be one of v4"),
    ("compressed_cache", None, "compressed_table: was given without compressed_cache"),
    ("compressed_cache", z(9, 8, 584, dtype=np.uint8), "compressed_cache: compressed.format is v4"),
    ("compressed_table", None, "compressed_table: is None, must be a tensor"),
    ("compressed_table", z(3, 0), "compressed_table: compressed_table_width is 0, must be 1"),
    ("topk", None, "topk: is None, must be a tensor"),
    ("topk", z(8, 0), "topk: topk_width is 0, must be 1"),
    ("topk", z(7, 5), "topk: has 7 in dimension 0, must have 8, the tokens of q"),
    ("request", None, "request: is None, must be a tensor"),
    ("request", z(8, dtype=I64), "request: holds int64, must hold int32"),
    ("ratio", 0, "ratio: is 0, must be 1"),
    ("ratio", 3, "ratio: is 3, must be 1"),
    ("window", 0, "window: is 0, must be 1"),
    ("window", 65537, "window: is 65537, must be 1"),
    ("route", "scenic", "route: is 'scenic', must be one of auto, paged, workspace"),
    ("route", 1, "route: is 1, must be one of auto"),
    ("max_rows", 0, "max_rows: is 0, must be 1"),
    ("max_rows", -1, "max_rows: is -1, must be 0"),
    ("host_query_lens", None, "host_query_lens: is NULL"),
    ("host_query_lens", [1.0, 2.5, 1.0], "host_query_lens: is no int32 array in host memory: has float64"),
    ("host_seq_lens", np.array([2**32 + 5, 1, 1]),
     "host_seq_lens: is no int32 array in host memory: has 4294967301"),
    ("host_seq_lens", 5, "host_seq_lens: has 0 dimensions"),
    ("host_query_lens", [1, 2], "host_query_lens: has 2 in dimension 0, must have 3, the requests"),
    ("host_query_lens", [3, 2, -1], "host_query_lens: \\[2\\] is -1, must not be negative"),
    ("host_query_lens", [4, 2, 1], "host_query_lens: \\[0\\] is 4, longer than its sequence of 3"),
    ("host_query_lens", ["x"], "host_query_lens: is no int32 array in host memory"),
    ("host_seq_lens", None, "host_seq_lens: is NULL"),
    ("host_seq_lens", [3, 11, 2 ** 40], "host_seq_lens: is no int32 array in host memory"),
    ("host_seq_lens", z(3, 1), "host_seq_lens: has 2 dimensions, must have 1"),
    ("scale", 0.0, "scale: is 0, must be finite and above 0"),
    ("out_form", "fp9", "out_form: is 'fp9', must be one of fp8_permuted"),
    ("lse", z(8, 24, dtype=np.float32), "lse: has 24 in dimension 1, must have 16"),
    ("n_faults", z(2), "n_faults: has 2 in dimension 0, must have 1"),
    ("implementation", "abacus", 'implementation: is "abacus", which attend does not have'),
    ("workspace", z(8, dtype=np.uint8), "workspace: has 8 bytes, must have"),
]


@pytest.mark.parametrize("name, value, message", WRONG)
def test_wrong_arguments_are_named(name, value, message):
    case, fw = PrefillCase(16), make_framework("numpy")
    good = {**case.arguments(fw), **case.keywords, **case.by_workspace()}
    megamla.attend_prefill(**good)
    with pytest.raises(ValueError, match="^" + message):
        megamla.attend_prefill(**{**good, name: value})


def test_wrong_lengths_of_chunks_are_named():
    keywords = dict(ratio=1, max_model_tokens=99, max_batch_tokens=99)
    for lens, message in ((5, "query_lens: has 0 dimensions"), ([2.5], "query_lens: is no int32 array"),
                          ([[1]], "query_lens: has 2 dimensions")):
        with pytest.raises(ValueError, match="^" + message):
            list(megamla.prefill_chunks(lens, [5], **keywords))


def test_an_illegal_query_start_is_named():
    case, fw = PrefillCase(16), make_framework("numpy")
    for start in ([0, 5, 3, 6], [0, 5, 7, 9], [1, 3, 5, 6]):
        with pytest.raises(ValueError, match="^query_start: "):
            case.run(fw, query_start=np.array(start, I32))


def test_picks_without_their_cache_are_refused():
    case, fw = PrefillCase(17, formats=("v4", None)), make_framework("numpy")
    for name, value in (("compressed_table", z(3, 4)), ("topk", z(8, 5)), ("request", z(8))):
        with pytest.raises(ValueError, match="^%s: was given without compressed_cache" % name):
            case.run(fw, **{name: value})
    with pytest.raises(ValueError, match="^ratio: is 1, must be 0"):
        case.run(fw, ratio=1)
