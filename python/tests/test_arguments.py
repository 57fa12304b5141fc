"""Wrong arguments: ValueError, whose message begins with the argument's name; nothing is written."""

import numpy as np
import pytest

import megamla
from attend_case import AttendCase
from conftest import make_framework

I32, I64, U8, U16 = np.int32, np.int64, np.uint8, np.uint16
T, H = 3, 16


def z(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


# The argument, what is given for it, and how the message begins.
BOTH = [
    ("q", None, "q: is not a tensor"),
    ("q", "text", "q: is not a tensor"),
    ("q", z(T, H, 512), "q: holds float32, must hold bfloat16"),
    ("q", z(T, H * 512, dtype=U16), "q: has 2 dimensions, must have 3"),
    ("q", z(T, H, 511, dtype=U16), "q: has 511 in dimension 2, must have 512"),
    ("q", z(T, 12, 512, dtype=U16), "q: n_heads is 12, must be a multiple of 8|sink: "),
    ("q", z(T, 136, 512, dtype=U16), "q: has 136 heads"),
    ("q", z(T, H, 1024, dtype=U16)[:, :, ::2], "q: has a stride of 2 in dimension 2"),
    ("q", z(T, H, 516, dtype=U16)[:, :, :512], "q: has a stride of 516 in dimension 1"),
    ("positions", None, "positions: is None, must be a tensor"),
    ("positions", z(T + 1, dtype=I32), "positions: has 4 in dimension 0, must have 3, the tokens"),
    ("positions", z(T, dtype=I64), "positions: holds int64, must hold int32"),
    ("cos_sin", z(20, 63), "cos_sin: has 63 in dimension 1, must have 64"),
    ("cos_sin", z(20, 128)[:, ::2], "cos_sin: has a stride of 2 in dimension 1"),
    ("cos_sin", z(0, 64), "cos_sin: rope_positions is 0, must be 1"),
    ("cos_sin", 1.5, "cos_sin: is not a tensor"),
    ("sink", z(H + 1), "sink: has 17 in dimension 0, must have 16, the heads of q"),
    ("sink", z(H, dtype=I32), "sink: holds int32, must hold float32"),
    ("scale", 0.0, "scale: is 0, must be finite and above 0"),
    ("scale", float("nan"), "scale: is nan"),
    ("scale", 1e31, "scale: is 1e\\+31, must be at most 1e\\+30"),
    ("scale", "x", "scale: is not a number"),
    ("q_layout", "twisted", "q_layout: is 'twisted', must be one of standard, fused"),
    ("q_norm_eps", 0.0, "q_norm_eps: is 0, must be finite and above 0"),
    ("out_form", "fp9", "out_form: is 'fp9', must be one of fp8_permuted, fp8, fp8_128, bf16"),
    ("out_form", [], "out_form: is \\[\\], must be one of"),
    ("lse", z(T, H + 8), "lse: has 24 in dimension 1, must have 16, the heads of q"),
    ("max_logits", z(T, H, dtype=I32), "max_logits: holds int32, must hold float32"),
    ("n_faults", z(2, dtype=I32), "n_faults: has 2 in dimension 0, must have 1"),
    ("implementation", "abacus", 'implementation: is "abacus", which attend does not have'),
    ("implementation", "x" * 80, "implementation: is too long"),
    ("implementation", 3, "implementation: is not a string"),
    ("batch_invariant", 2, "batch_invariant: is 2, must be 0 .. 1"),
    ("workspace", z(8, dtype=U8), "workspace: has 8 bytes, must have"),
    ("out", z(T, 2, 4096, dtype=U8), "out_scale: is None"),
    ("out_scale", z(T, 2, 32, dtype=I32), "out: is None, must be given together"),
]
PAGED = [
    ("window_cache", None, "window_cache: is None, must be a tensor"),
    ("window_cache", z(3, 16, 527, dtype=U8), "window_cache: has records of 527 bytes, must have 584"),
    ("window_cache", z(3, 16, 132, dtype=U8), "window_cache: has records of 132 bytes, must have 584"),
    ("window_cache", z(3, 16, 2, 528, dtype=U8), "window_cache: has 2 in dimension 2, must have 1"),
    ("window_cache", z(3, 8448, dtype=U8), "window_cache: is .*, which needs its format"),
    ("window_cache", z(3, 16, 528), "window_cache: holds float32, must hold a type of one byte"),
    ("window_cache", z(3, 5, 584, dtype=U8), "window_cache: window.page_stride_bytes is 2920, must"),
    ("window_cache", z(3, 0, 528, dtype=U8), "window_cache: has pages of 0 tokens, must have 1 "),
    ("window_cache", z(3, 16, 600, dtype=U8)[:, :, :528], "window_cache: has a stride of 600"),
    ("window_format", "v4", "window_cache: has records of 528 bytes, its format was told to be v4"),
    ("window_format", "v5", "window_format: is 'v5', must be one of v4"),
    ("window_page_tokens", 15, "window_cache: has pages of 16 tokens, was told to have 15"),
    ("window_list", z(T, 0, dtype=I32), "window_list: list_width is 0, must be 1"),
    ("window_list", None, "window_lens: was given without window_list"),
    ("window_list", z(T, 9, dtype=I64), "window_list: holds int64, must hold int32"),
    ("window_list", z(T + 1, 9, dtype=I32), "window_list: has 4 in dimension 0, must have 3"),
    ("window_list", z(T, 18, dtype=I32)[:, ::2], "window_list: has a stride of 2 in dimension 1"),
    ("window_lens", z(T, 1, dtype=I32), "window_lens: has 2 dimensions, must have 1"),
    ("compressed_cache", z(3, 8, 584, dtype=U8), "compressed_cache: compressed.format is v4 beside"),
    ("compressed_cache", None, "compressed_cache: is None, must be given beside the other"),
    ("compressed_list", None, "compressed_lens: was given without compressed_list"),
    ("compressed_list", z(T, 0, dtype=I32), "compressed_list: compressed_width is 0, must be 1"),
    ("compressed_lens", z(T + 2, dtype=I32), "compressed_lens: has 5 in dimension 0, must have 3"),
]
ROWS = [
    ("kv", z(40, 512), "kv: holds float32, must hold bfloat16"),
    ("kv", z(40, 2, 512, dtype=U16), "kv: has 2 in dimension 1, must have 1"),
    ("kv", z(40, 516, dtype=U16)[:, :512], "kv: kv_row_stride is 516, must be a multiple of 8"),
    ("kv", z(512, dtype=U16), "kv: has 1 dimensions, must have 2 to 3"),
    ("list", z(T, 0, dtype=I32), "list: list_width is 0, must be 1"),
    ("list", z(T, dtype=I32), "list: has 1 dimensions, must have 2"),
    ("lens", z(T), "lens: holds float32, must hold int32"),
]


def refuse(function, arguments, message):
    with pytest.raises(ValueError, match="^(%s)" % message):
        function(**arguments)


@pytest.mark.parametrize("name, value, message", BOTH + PAGED)
def test_attend_paged_names_the_argument(name, value, message):
    case, fw = AttendCase(1), make_framework("numpy")
    refuse(megamla.attend_paged, {**case.arguments(fw), **case.keywords, name: value}, message)


@pytest.mark.parametrize("name, value, message", BOTH + ROWS)
def test_attend_rows_names_the_argument(name, value, message):
    case, fw = AttendCase(1, rows=40), make_framework("numpy")
    refuse(megamla.attend_rows, {**case.arguments(fw), **case.keywords, name: value}, message)


@pytest.mark.parametrize("name, value, message", BOTH + PAGED)
def test_torch_tensors_get_the_same_messages(torch, name, value, message):
    """They take another way in (binding_fast.c)."""
    case, fw = AttendCase(1), make_framework("torch-cpu")
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    refuse(megamla.attend_paged, {**case.arguments(fw), **case.keywords, name: value}, message)


def test_a_stride_of_zero_is_refused(torch):
    case, fw = AttendCase(1), make_framework("torch-cpu")
    arguments = {**case.arguments(fw), **case.keywords}
    arguments["window_list"] = arguments["window_list"][:1].expand(T, -1)
    refuse(megamla.attend_paged, arguments, "window_list: has a stride of 0 in dimension 0")


def test_a_sparse_tensor_is_refused(torch):
    case, fw = AttendCase(1), make_framework("torch-cpu")
    arguments = {**case.arguments(fw), **case.keywords, "sink": torch.zeros(H).to_sparse()}
    with pytest.raises((ValueError, RuntimeError, BufferError)):
        megamla.attend_paged(**arguments)


def results(case, fw):
    return dict(out=fw.put(np.full((T, 2, 4096), 7, U8), "e4m3"),
                out_scale=np.full((2, 32, 4), 7, I32).transpose(2, 0, 1)[:T],
                lse=fw.put(np.full((T, H), 7, np.float32)))


OUTPUTS = [
    ("out", z(T, 2, 4095, dtype=U8), "out: has 4095 in dimension 2, must have 4096"),
    ("out", z(T, 1, 4096, dtype=U8), "out: has 1 in dimension 1, must have 2, groups of 8 heads"),
    ("out", z(T, 2, 4096, dtype=U16), "out: holds uint16, must hold float8_e4m3fn"),
    ("out", z(T, 2, 8192, dtype=U8)[:, :, ::2], "out: has a stride of 2 in dimension 2"),
    ("out_scale", z(T, 2, 32, dtype=I32), "out_scale: has a stride of 64 in dimension 0, must have 1"),
    ("out_scale", z(T, 2, 128, dtype=U8), "out_scale: holds uint8, must hold int32"),
    ("out_scale", z(2, 31, 4, dtype=I32).transpose(2, 0, 1)[:T], "out_scale: has 31 in dimension 2"),
]


@pytest.mark.parametrize("name, value, message", OUTPUTS)
def test_wrong_results_leave_the_others_untouched(name, value, message):
    case, fw = AttendCase(1), make_framework("numpy")
    given = results(case, fw)
    given[name] = value
    keywords = dict(case.keywords, max_logits=False)
    refuse(megamla.attend_paged, {**case.arguments(fw), **keywords, **given}, message)
    for other, tensor in given.items():
        assert other == name or np.all(tensor == 7), other


def test_misaligned_results_are_refused():
    case, fw = AttendCase(1), make_framework("numpy")
    memory = np.zeros(T * 2 * 4096 + 64, U8)
    start = -memory.ctypes.data % 32 + 1
    given = results(case, fw)
    given["out"] = memory[start:start + T * 2 * 4096].reshape(T, 2, 4096)
    keywords = dict(case.keywords, max_logits=False)
    refuse(megamla.attend_paged, {**case.arguments(fw), **keywords, **given},
           "out: is at 0x[0-9a-f]+, must be a multiple of 32")


def test_bf16_results_have_no_scale():
    case, fw = AttendCase(1, out_form="bf16"), make_framework("numpy")
    out = megamla.attend_paged(**case.arguments(fw), **case.keywords).out
    refuse(megamla.attend_paged, {**case.arguments(fw), **case.keywords, "out": out,
                                  "out_scale": z(T, 2, 32, dtype=I32)},
           "out_scale: was given, but a bf16 result has none")


class Unknown:
    """A tensor of a framework that nobody knows."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_an_unknown_framework_can_be_read_but_not_made():
    case, fw = AttendCase(1), make_framework("numpy")
    made = case.run(fw)
    arguments = {**case.arguments(fw), **case.keywords, "q": Unknown(case.q)}
    refuse(megamla.attend_paged, arguments, "out: results must be given: cannot make a test_arguments")
    case.check(fw, megamla.attend_paged(**arguments | dict(
        out=made.out, out_scale=made.out_scale, lse=made.lse, max_logits=made.max_logits)))


def test_a_device_that_is_not_there_is_a_runtime_error():
    if megamla.supports(8, device="cuda"):
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="CUDA"):
        megamla.implementations("cuda")
