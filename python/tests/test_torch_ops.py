"""The custom operators: schemas, fakes, compiled code, CUDA graphs."""

import numpy as np
import pytest

import megamla
from attend_case import AttendCase, angles, bf16_noise
from conftest import make_framework

FORMS = ["fp8_permuted", "fp8", "fp8_128", "bf16"]


@pytest.fixture
def ops(torch):
    from megamla import torch_ops

    return torch_ops


@pytest.fixture(params=["torch-cpu", "torch-cuda"])
def fw(request, torch):
    return make_framework(request.param)


def arguments(case, fw):
    a = case.arguments(fw)
    return {name: a[name] for name in a if not name.endswith(("format", "page_tokens"))}


def keywords(case):
    return {name: value for name, value in case.keywords.items() if name != "max_logits"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [None, 30])
def test_operators_give_what_the_functions_give(ops, fw, form, rows):
    case = AttendCase(1, out_form=form, rows=rows, compressed_page_tokens=32)
    function = ops.attend_paged if rows is None else ops.attend_rows
    case.check(fw, function(**arguments(case, fw), **keywords(case)))


@pytest.mark.parametrize("form", FORMS)
def test_operators_pass_pytorch_s_own_checks(ops, torch, form):
    """Schemas, and fakes against real results. PyTorch cannot compare the fp8 tensors of a schema that
    writes them, so of those operators the schema is checked with bf16 alone."""
    fw = make_framework("torch-cpu")
    for rows in (None, 30):
        case = AttendCase(2, t=5, out_form=form, rows=rows, compressed_page_tokens=32)
        a, k = arguments(case, fw), keywords(case)
        op = torch.ops.megamla.attend_paged if rows is None else torch.ops.megamla.attend_rows
        scale = k.pop("scale")
        sink = a.pop("sink")
        torch.library.opcheck(op.default, (*a.values(), scale, sink), k,
                              test_utils=("test_schema", "test_faketensor"))
        made = case.function(**a, sink=sink, scale=scale, **k, max_logits=True)
        given = [None if x is None else x.clone() for x in made]
        out_op = (torch.ops.megamla.attend_paged_out if rows is None
                  else torch.ops.megamla.attend_rows_out)
        checks = ("test_faketensor", "test_autograd_registration")
        if form == "bf16":
            checks += ("test_schema", "test_aot_dispatch_dynamic")
        torch.library.opcheck(out_op.default, (*a.values(), *given, scale, sink), k,
                              test_utils=checks)


OPTIONS = [{}, dict(out_form="bf16"), dict(out_form="fp8_128", sink=False),
           dict(out_form="fp8", q_layout="fused", q_norm=True, lens=False)]


def out_call(ops, fw, torch, rows, options):
    """A case, its results filled with something else, and a call of the operator that writes them."""
    case = AttendCase(3, t=5, rows=rows, compressed_page_tokens=32, **options)
    a, k = arguments(case, fw), keywords(case)
    scale, sink = k.pop("scale"), a.pop("sink")
    given = case.function(**a, sink=sink, scale=scale, **k, max_logits=True)
    for tensor in given:
        if tensor is not None:
            tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]).fill_(3)
    op = torch.ops.megamla.attend_paged_out if rows is None else torch.ops.megamla.attend_rows_out

    def call(**other):
        inputs, rest = ({n: other.get(n, of[n]) for n in of} for of in (a, k))
        op.default(*inputs.values(), *given, scale, sink, **rest)

    return case, given, call


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rows", [None, 30])
def test_out_operators_write_what_they_are_given(ops, torch, fw, rows, options):
    case, given, call = out_call(ops, fw, torch, rows, options)
    call()
    case.check(fw, given)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rows", [None, 30])
def test_out_operators_need_no_function_of_python(ops, torch, fw, rows, options, monkeypatch):
    """Where PyTorch can show its tensors; binding_fast.c takes the arguments as they come."""
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this PyTorch has no exchange API of DLPack")
    case, given, call = out_call(ops, fw, torch, rows, options)
    for name in ("attend_paged", "attend_rows"):
        monkeypatch.setattr(ops._attend, name, None)
    call()
    case.check(fw, given)


@pytest.mark.parametrize("rows", [None, 30])
def test_out_operators_name_what_is_wrong(ops, torch, rows):
    case, given, call = out_call(ops, make_framework("torch-cpu"), torch, rows, dict(q_norm=True))
    for wrong, message in [(dict(positions=torch.zeros(2, dtype=torch.int32)), "positions: has 2 in"),
                           (dict(positions=torch.zeros(5)), "positions: holds float32"),
                           (dict(q_layout="twisted"), "q_layout: is 'twisted', must be one of"),
                           (dict(out_form="fp9"), "out_form: is 'fp9', must be one of"),
                           (dict(q_norm_eps=0.0), "q_norm_eps: is 0, must be finite")]:
        with pytest.raises(ValueError, match="^" + message):
            call(**wrong)
        assert (given.lse.view(torch.int32) == 3).all()
    with pytest.raises(ValueError, match="^positions: of token 0 is 20, must"):
        call(positions=torch.full((5,), 20, dtype=torch.int32))


def test_out_operators_take_parameters(ops, torch):
    """A subclass of the tensor type, and one that wants a gradient, which there is none of."""
    for gradient in (False, True):
        case, given, call = out_call(ops, make_framework("torch-cpu"), torch, None, {})
        q = make_framework("torch-cpu").put(case.q, "bf16")
        call(q=torch.nn.Parameter(q, requires_grad=gradient))
        case.check(make_framework("torch-cpu"), given)
        assert not given.lse.requires_grad


def test_gather_operator_takes_what_the_function_takes(ops, torch):
    cache = torch.randint(0, 100, (2, 16, 528), dtype=torch.uint8)
    table, seq = torch.tensor([[1, 0]], dtype=torch.int32), torch.tensor([9], dtype=torch.int32)
    start = torch.tensor([0, 2], dtype=torch.int32)
    for more in ({}, dict(ratio=2), dict(window=3, query_start=start)):
        out, want = (torch.zeros(1, 12, 512, dtype=torch.bfloat16) for _ in range(2))
        torch.ops.megamla.kv_gather_out(cache, table, seq, None, 1, out, **more)
        megamla.kv_gather(cache, table, seq, offset=1, out=want, **more)
        assert torch.equal(out, want) and out.count_nonzero() > 0


def test_wrong_arguments_are_named(ops):
    case, fw = AttendCase(4, compressed_page_tokens=32), make_framework("torch-cpu")
    a = arguments(case, fw)
    with pytest.raises(ValueError, match="^positions: has 2 in dimension 0"):
        ops.attend_paged(**{**a, "positions": a["positions"][:2]}, **keywords(case))


class Layer:
    """Insert, attend, project, as a model's layer would."""

    def __init__(self, fw, torch, t=4):
        rng = np.random.default_rng(5)
        self.case = AttendCase(6, t=t, q_layout="fused", compressed_page_tokens=32)
        self.a = arguments(self.case, fw)
        self.rows = fw.put(bf16_noise(rng, (t, 512)), "bf16")
        self.at = fw.put(np.arange(t, dtype=np.int64))
        self.cos_sin = fw.put(angles(rng, 32))
        weight = rng.integers(0, 0x70, (2, 8, 4096)).astype(np.uint8)
        self.w = fw.put(weight, "e4m3")
        self.s = fw.put(np.full((2, 8, 128), 120, np.uint8))

    def run(self, api, q, cache):
        api.kv_insert(self.rows, self.at, self.at, self.cos_sin, cache)
        a = {**self.a, "q": q, "window_cache": cache}
        result = api.attend_paged(**a, scale=0.05, q_layout="fused")
        return api.project(result.out, result.out_scale, self.w, self.s), result.lse


def test_compiled_code_equals_eager_code(ops, torch, fw):
    layer = Layer(fw, torch)
    q, cache = layer.a["q"], layer.a["window_cache"]
    want = layer.run(megamla, q, cache.clone())

    def step(q, cache):
        z, lse = layer.run(ops, q * 1, cache)
        return z + 0, lse + 0, cache

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    written = cache.clone()
    got = compiled(q, written)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])
    eager = cache.clone()
    megamla.kv_insert(layer.rows, layer.at, layer.at, layer.cos_sin, eager)
    assert torch.equal(written, eager), "the cache that was given is the one that is written"


def test_project_takes_a_wide_weight(ops, torch, fw):
    """Where the device has no use for one, anything may be given."""
    layer = Layer(fw, torch)
    result = megamla.attend_paged(**layer.a, scale=0.05, q_layout="fused")
    try:
        wide = megamla.project_widen(layer.w, layer.s)
    except ValueError:
        wide = fw.put(np.zeros(8, np.uint8))
    operands = result.out, result.out_scale, layer.w, layer.s
    want = megamla.project(*operands, weight_wide=wide)
    assert torch.equal(ops.project(*operands, weight_wide=wide), want)
    compiled = torch.compile(lambda *a: ops.project(*a[:4], weight_wide=a[4]) * 1, fullgraph=True,
                             backend="aot_eager")
    assert torch.equal(compiled(*operands, wide), want)


def test_compiled_code_takes_any_number_of_tokens(ops, torch):
    fw = make_framework("torch-cpu")

    def step(a):
        return ops.attend_paged(**a, scale=0.05, q_layout="standard").lse * 1

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=True)
    for t in (3, 5, 9):
        case = AttendCase(7, t=t, compressed_page_tokens=32)
        a = arguments(case, fw)
        assert torch.equal(compiled(a), megamla.attend_paged(**a, scale=0.05).lse)


def test_cuda_graph_replays_with_other_contents(ops, torch):
    fw = make_framework("torch-cuda")
    layer = Layer(fw, torch)
    q, cache = layer.a["q"].clone(), layer.a["window_cache"].clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # makes the plans
        layer.run(megamla, q, cache)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z, lse = layer.run(megamla, q, cache)
    for factor in (1.0, 0.5, -1.0):
        q.copy_(layer.a["q"] * factor)
        graph.replay()
        want = layer.run(megamla, layer.a["q"] * factor, cache.clone())
        torch.cuda.synchronize()
        assert torch.equal(z, want[0]) and torch.equal(lse, want[1])


def test_compiled_code_in_cuda_graphs(ops, torch):
    fw = make_framework("torch-cuda")
    layer = Layer(fw, torch)
    q, cache = layer.a["q"], layer.a["window_cache"]
    want = layer.run(megamla, q, cache.clone())
    compiled = torch.compile(lambda q, cache: layer.run(ops, q, cache), mode="reduce-overhead")
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        z, lse = (x.clone() for x in compiled(q, cache.clone()))
    assert torch.equal(z, want[0]) and torch.equal(lse, want[1])


def behind_a_busy_kernel(torch, fw, case, call):
    """What call(q) gives on a stream where q is written behind a kernel that keeps it busy: a call that
    does not wait reads NaN."""
    written = fw.put(case.q, "bf16")
    q = torch.full_like(written, float("nan"))
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        q.copy_(written)
        result = call(q)
    stream.synchronize()
    return result


def test_work_goes_to_the_current_stream(torch):
    fw = make_framework("torch-cuda")
    case = AttendCase(8, t=5)
    a = case.arguments(fw)
    case.check(fw, behind_a_busy_kernel(
        torch, fw, case, lambda q: megamla.attend_paged(**{**a, "q": q}, **case.keywords)))


@pytest.mark.parametrize("rows", [None, 30])
def test_out_operators_work_on_the_current_stream(ops, torch, rows):
    fw = make_framework("torch-cuda")
    case, given, call = out_call(ops, fw, torch, rows, {})
    behind_a_busy_kernel(torch, fw, case, lambda q: call(q=q))
    case.check(fw, given)
