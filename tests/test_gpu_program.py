"""experiments/gpu_program.py counts kernels and bytes; here on a program small enough to count by hand."""

from pathlib import Path

PROGRAM = """
HloModule small

%body (p: (f32[8,4])) -> (f32[8,4]) {
  %p = (f32[8,4]{1,0}) parameter(0)
  %x = f32[8,4]{1,0} get-tuple-element(%p), index=0
KERNELS  %last = bf16[8]{0} fusion(%x), kind=kLoop, calls=%f
  ROOT %out = (f32[8,4]{1,0}) tuple(%x)
}

ENTRY %main (a: f32[8,4]) -> (f32[8,4]) {
  %a = f32[8,4]{1,0} parameter(0)
  ROOT %w = (f32[8,4]{1,0}) while(%a), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"12"}}
}
"""

NESTED = """
%inner (p: (f32[8])) -> (f32[8]) {
  %a = f32[8]{0} fusion(%x), kind=kLoop, calls=%f
  %b = f32[8]{0} custom-call(%a), custom_call_target="__gpu$xla.gpu.triton"
}

%outer (p: (f32[8])) -> (f32[8]) {
  %c = f32[8]{0} copy(%x)
  %w = (f32[8]{0}) while(%c), condition=%k, body=%inner, backend_config={"known_trip_count":{"n":"32"}}
}

ENTRY %main (a: f32[8]) -> (f32[8]) {
  %w = (f32[8]{0}) while(%a), condition=%c, body=%outer
}
"""


def test_kernels_and_bytes_of_a_loop_are_counted(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")
    import gpu_program

    copies = "".join(f"  %y{i} = f32[8,4]{{1,0}} copy(%x)\n" for i in range(20))
    (loop,) = gpu_program.loops(PROGRAM.replace("KERNELS", copies))
    assert loop.kinds == {"copy": 20, "fusion": 1}
    assert loop.moved == 20 * 2 * 128 + 128 + 16
    assert (loop.name, loop.turns) == ("body", "12")
    assert gpu_program.loops(PROGRAM.replace("KERNELS", "")) == []  # one kernel is no loop worth a line


def test_kernels_of_an_update_are_those_of_its_loops_as_often_as_they_turn(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")
    import gpu_program

    assert gpu_program.starts(NESTED) == {"outer": 1 + 32 * 2}
    inner = gpu_program.computations(NESTED)["inner"]
    assert gpu_program.loop_of("inner", inner).kinds == {"fusion": 1, "kernel of ours": 1}


def test_products_whose_batch_is_not_first_are_named(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")
    import gpu_program

    product = (
        '%{} = (f32[5,2,64]{{2,1,0}}, s8[9]{{0}}) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", {}'
    )
    dimensions = '"lhs_batch_dimensions":["{}"],"rhs_batch_dimensions":["0"]'
    lines = [product.format(name, dimensions.format(batch)) for name, batch in (("right", 0), ("wrong", 1))]
    lines.append(product.format("alone", '"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]'))
    (found,) = gpu_program.doubtful_products("\n".join(lines))
    assert found.startswith("%wrong = ")
