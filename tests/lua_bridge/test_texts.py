"""The bridge's modules that need neither slurmctld nor an engine."""

from __future__ import annotations

import pytest

#: sentence, call, its results by comma.
ANSWERS = [
    ("a count, as 23.02 and later write it", "gres.parse('gres/gpu:2')", "2,"),
    ("a count, as 22.05 writes it", "gres.parse('gres:gpu:2')", "2,"),
    ("no prefix", "gres.parse('gpu:2')", "2,"),
    ("no count is one", "gres.parse('gres/gpu')", "1,"),
    ("a type alone is one of it", "gres.parse('gres/gpu:v100')", "1,v100"),
    ("type and count", "gres.parse('gres/gpu:v100:3')", "3,v100"),
    ("type and count with an equals sign", "gres.parse('gres/gpu:v100=3')", "3,v100"),
    ("behind cpus, as in tres_per_task", "gres.parse('cpu=4,gres/gpu=3')", "3,"),
    ("a type with a dot", "gres.parse('gres/gpu:a100.s0:1')", "1,a100.s0"),
    ("behind another gres", "gres.parse('gres/nvme:1,gres/gpu:2')", "2,"),
    ("the same type twice adds up", "gres.parse('gres:gpu:v100:1,gpu:v100:2')", "3,v100"),
    ("two types are no type", "gres.parse('gres/gpu:v100:1,gres/gpu:a100:2')", "3,"),
    ("Slurm's suffix k", "gres.parse('gres/gpu:1k')", "1024,"),
    ("zero GPUs", "gres.parse('gres/gpu:0')", "0,"),
    ("no GPU in it", "gres.parse('cpu:4')", "0,"),
    ("a name that only begins with gpu", "gres.parse('gres/gpufs:4')", "0,"),
    ("MIG", "gres.parse('gres/gpu:1g.5gb:2')", "nil"),
    ("MIG with its GPU's name", "gres.parse('gres/gpu:a100_3g.20gb:1')", "nil"),
    ("MPS", "gres.parse('gres/mps:50')", "nil"),
    ("shards beside a GPU", "gres.parse('gres/gpu:1,gres/shard:4')", "nil"),
    ("an absurd count", "gres.parse('gres/gpu:99999999999')", "nil"),
    ("a field too many", "gres.parse('gres/gpu:v100:2:3')", "nil"),
    ("not a suffix of Slurm's", "gres.parse('gres/gpu:2q')", "nil"),
    ("without type and with count", "gres.untyped('gres/gpu:v100:2')", "gres/gpu:2"),
    ("without type, as 22.05 writes it", "gres.untyped('gres:gpu:v100:2')", "gres:gpu:2"),
    ("without type in tres_per_task", "gres.untyped('gres/gpu:v100=2')", "gres/gpu=2"),
    ("a type alone becomes one", "gres.untyped('gres/gpu:v100')", "gres/gpu:1"),
    ("CPUs stay", "gres.untyped('cpu=4,gres/gpu:v100=1')", "cpu=4,gres/gpu=1"),
    ("other GRES stay", "gres.untyped('nvme:x:1,gres/gpu:v100:2')", "nvme:x:1,gres/gpu:2"),
    ("two of one type become one item", "gres.untyped('gpu:v100:1,gpu:v100:2')", "gpu:3"),
    ("no type, no change", "gres.untyped('gres/gpu:2')", "gres/gpu:2"),
    ("nor without a count", "gres.untyped('gres/gpu')", "gres/gpu"),
    ("MIG stays", "gres.untyped('gpu:1g.5gb:1')", "gpu:1g.5gb:1"),
    ("gpufs stays", "gres.untyped('gres/gpufs:fast:1')", "gres/gpufs:fast:1"),
    ("a model twice is one", "unpack(gres.types('gres/gpu:v100:1,gres/gpu:v100:2'))", "v100"),
    ("a variable with model", "gres.untyped_count('v100:2')", "2"),
    ("a model alone", "gres.untyped_count('v100')", "1"),
    ("two models", "gres.untyped_count('v100:1,a100:2')", "3"),
    ("a number alone", "gres.untyped_count('2')", "nil"),
    ("an empty variable", "gres.untyped_count('')", "nil"),
    ("no count", "gres.untyped_count('a:b')", "nil"),
    ("no constraint", "gres.with_feature('', 'v100')", "v100"),
    ("one feature", "gres.with_feature('ib', 'v100')", "ib&v100"),
    ("already asked for", "gres.with_feature('ib&v100', 'v100')", "ib&v100"),
    ("a choice is bracketed", "gres.with_feature('ib|eth', 'v100')", "(ib|eth)&v100"),
    ("one of several for all nodes", "gres.with_feature('[rack1|rack2]', 'v100')", "nil"),
    ("a count", "gres.with_feature('ib*2', 'v100')", "nil"),
    ("a GPU", "gres.is_slot('s0')", "true"),
    ("a model's GPU", "gres.is_slot('v100.s12')", "true"),
    ("an s", "gres.is_slot('s')", "false"),
    ("a model that ends in s", "gres.is_slot('l40s')", "false"),
    ("a model with an s in it", "gres.is_slot('as5')", "false"),
    ("our bracket", "comment.are_brackets('[gpu-topo: a]', false)", "true"),
    ("two of ours", "comment.are_brackets('[gpu-topo: a] [gpu-shape: 1x1]', false)", "true"),
    ("another of ours", "comment.are_brackets('[gpu-shape: 1x1]', false)", "true"),
    ("slots in the other mode", "comment.are_brackets('[gpu-slots: gated]', false)", "false"),
    ("slots", "comment.are_brackets('[gpu-shape: 1x1] [gpu-slots: gated]', true)", "true"),
    ("one kind twice", "comment.are_brackets('[gpu-topo: a] [gpu-topo: b]', true)", "false"),
    ("no blank between", "comment.are_brackets('[gpu-topo: a][gpu-shape: 1x1]', true)", "false"),
    ("more text", "comment.are_brackets('[gpu-topo: a] b', true)", "false"),
    ("not ours", "comment.are_brackets('[gpu-other: a]', true)", "false"),
    ("no text", "comment.are_brackets('', true)", "false"),
    ("the site's text stays in front", "comment.merged('site 7', ours)", "site 7 [gpu-topo: b]"),
    ("an older bracket goes", "comment.merged('[gpu-topo: old | note]', ours)", "[gpu-topo: b]"),
    ("one in the middle", "comment.merged('a [gpu-topo: a] b [x]', ours)", "a b [x] [gpu-topo: b]"),
    ("two of them", "comment.merged('[gpu-topo: 1] a [gpu-topo: 2]', ours)", "a [gpu-topo: b]"),
    ("before an open one", "comment.merged('[gpu-topo: a', ours)", "[gpu-topo: b] [gpu-topo: a"),
    ("inside another's", "comment.merged('[a [gpu-topo: b]]', ours)",
     "[a [gpu-topo: b]] [gpu-topo: b]"),
    ("pattern characters", "comment.merged('%a%1 \\\\', ours)", "%a%1 \\ [gpu-topo: b]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "results"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS]
)
def test_a_text_is_answered_by(lua, call, results):
    found = lua.evaluate(
        "local gres, comment = require('gputopo.gres'), require('gputopo.comment')"
        f" local ours = '[gpu-topo: b]' local all = {{{call}}}"
        " for i = 1, math.max(1, #all) do all[i] = tostring(all[i]) end"
        " return table.concat(all, ',')"
    )
    assert found == results


#: sentence, what is done with new kept answers, what was noted.
COURSES = [
    ("an answer is forgotten after its time, and when the clock is set back",
     "answers:put('q', 'pass', true, 5, 100) for _, now in ipairs({100, 104.9, 105, 99}) do"
     " note(answers:get('q', now)) end", "pass pass nil nil"),
    ("the memory for answers is bounded",
     "for i = 1, 1000 do answers:put('q' .. i, 'pass', true, 60, 0) end local n = 0"
     " for _ in pairs(answers.kept) do n = n + 1 end note(n <= 256) note(answers:get('q1000', 0))",
     "true pass"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("course", "noted"), [row[1:] for row in COURSES], ids=[row[0] for row in COURSES]
)
def test_over_time(lua, course, noted):
    found = lua.evaluate(
        "local answers = require('gputopo.engine.answers').new()"
        " local noted = {} local function note(value) noted[#noted + 1] = tostring(value) end "
        f"{course} return table.concat(noted, ' ')"
    )
    assert found == noted
