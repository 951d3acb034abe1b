"""Wrong scenario files, and what is said about each of them."""

import pytest

from antiphon.kernel.errors import ScenarioError
from antiphon.simulator.scenario.file import parse_scenario

ONCE = 'nodes = 64\nworkload = { kind = "once" }\n'


def complaint(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "a.toml")
    return str(caught.value)


WRONG = {
    "syntax": (
        "nodes = 64\nname is this\n",
        "a.toml, line 2, column 6: expected '=' after a key in a key/value pair, in the line: name is this; "
        'write one key = value per line and text in quotes, for example: name = "a first try"',
    ),
    "unfinished": (
        "nodes = [64\n",
        "a.toml, at its end: unclosed array; write one key = value per line and text in quotes, "
        'for example: name = "a first try"',
    ),
    "missing key": (
        "seed = 1\n",
        "a.toml: the key 'nodes' is missing; expected a number of nodes from 1 to 4194304; for example: nodes = 64",
    ),
    "missing key in a table": (
        ONCE + '[[fault]]\nkind = "crash"\nnode = 1',
        "a.toml, line 3: fault 1: the key 'at' is missing; expected a time in ticks, 0 or more; for example: at = 500",
    ),
    "missing kind": (
        "nodes = 64\n[workload]\nwindow = 10",
        "a.toml, line 2: workload: the key 'kind' is missing; expected one of once, rate; for example: kind = \"once\"",
    ),
    "unknown key": (
        ONCE + "\nnode = 3",
        "a.toml, line 4: node: there is no such key (did you mean 'nodes'?); for example: nodes = 64; the keys here "
        "are name, seed, fabric, protocol, order, nodes, protocol-options, network, topics, workload, publish, "
        "subscribe, unsubscribe, fault, limits, trace",
    ),
    "unknown key in a table": (
        ONCE + "[network]\ntransmission = 3\nlatency = 100",
        "a.toml, line 5: network.latency: there is no such key; the keys here are delay, transmission, processing, "
        "charge_control, loss, duplication, reordering, reordering_window, detection, in_order, "
        "notices_pauses",
    ),
    "a key that another kind of fault has": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnode = 3\nuntil = 9',
        "a.toml, line 7: fault 1, until: there is no such key; the keys here are kind, at, node, nodes, detected_after",
    ),
    "an option that another protocol has": (
        ONCE + "[protocol-options]\nroot = 3",
        "a.toml, line 4: protocol-options.root: there is no such key; the keys here are acknowledge, largest_first",
    ),
    "wrong type": (
        'nodes = "64"',
        'a.toml, line 1: nodes: expected a number of nodes from 1 to 4194304, not "64"; for example: nodes = 64',
    ),
    "wrong type of an option": (
        ONCE + "[protocol-options]\nacknowledge = 1",
        "a.toml, line 4: protocol-options.acknowledge: expected true or false, not 1; for example: acknowledge = true",
    ),
    "not a table": (
        "nodes = 64\nworkload = 3",
        "a.toml, line 2: workload: expected a table that describes the workload, not 3; "
        'for example: workload = { kind = "once", window = 1000 }',
    ),
    "not a list of tables": (
        ONCE + "fault = [3]",
        "a.toml, line 3: fault 1: expected tables [[fault]], not 3; "
        'for example: fault = [{ at = 500, kind = "crash", node = 5 }]',
    ),
    "too small": (
        "nodes = 0",
        "a.toml, line 1: nodes: expected a number of nodes from 1 to 4194304, not 0; for example: nodes = 64",
    ),
    "too many": (
        "nodes = 4194305",
        "a.toml, line 1: nodes: expected a number of nodes from 1 to 4194304, not 4194305; for example: nodes = 64",
    ),
    "not a probability": (
        ONCE + "[network]\nloss = 1.5",
        "a.toml, line 4: network.loss: expected a probability from 0 to 1, not 1.5; for example: loss = 0.01",
    ),
    "not a number": (
        ONCE + "[network]\nloss = nan",
        "a.toml, line 4: network.loss: expected a probability from 0 to 1, not nan; for example: loss = 0.01",
    ),
    "negative time": (
        ONCE + '[[fault]]\nat = -1\nkind = "crash"\nnode = 3',
        "a.toml, line 4: fault 1, at: expected a time in ticks, 0 or more, not -1; for example: at = 500",
    ),
    "negative delay": (
        ONCE + "[network]\ntransmission = -1",
        "a.toml, line 4: network.transmission: expected a number of ticks, 0 or more, not -1; "
        "for example: transmission = 100",
    ),
    "negative delay in a matrix": (
        ONCE + '[network]\ndelay = { law = "matrix", rows = [[1, 2], [-3, 4]] }',
        "a.toml, line 4: network.delay.rows 2, 1: expected one row of delays in ticks for each place, as long as there "
        "are rows, not -3; for example: rows = [[1, 80], [80, 1]]",
    ),
    "a matrix that is not square": (
        ONCE + '[network]\ndelay = { law = "matrix", rows = [[1, 2], [3]] }',
        "a.toml, line 4: network.delay.rows 2: expected as many delays as there are rows, 2, not 1; "
        "for example: rows = [[1, 80], [80, 1]]",
    ),
    "an empty matrix": (
        ONCE + '[network]\ndelay = { law = "matrix", rows = [] }',
        "a.toml, line 4: network.delay.rows: a matrix needs a row; for example: rows = [[1, 80], [80, 1]]",
    ),
    "unknown law": (
        ONCE + '[network]\ndelay = { law = "konstant", ticks = 3 }',
        'a.toml, line 4: network.delay.law: expected one of constant, normal, quantiles, link, matrix, not "konstant" '
        "(did you mean 'constant'?); for example: law = \"constant\"",
    ),
    "a law that links cannot draw from": (
        ONCE + '[network]\ndelay = { law = "link", of = { law = "matrix", rows = [[1]] } }',
        'a.toml, line 4: network.delay.of.law: expected one of constant, normal, quantiles, not "matrix"; '
        'for example: law = "constant"',
    ),
    "reordering without a window": (
        ONCE + "[network]\nreordering = 0.1",
        "a.toml, line 4: network.reordering: reordered copies need a largest delay; "
        "add for example: reordering_window = 50",
    ),
    "unknown fabric": (
        ONCE + 'fabric = "torus"',
        'a.toml, line 3: fabric: expected one of cube, gossip, tree, not "torus"; for example: fabric = "cube"',
    ),
    "unknown protocol": (
        ONCE + 'protocol = "singletree"',
        "a.toml, line 3: protocol: expected one of broadcast, single-tree, vcube-ps, vcube-ps-lasting, "
        "broker-tree, brisa, flooding, epto, causal-aggregation, timer-bundling, vcube-ps-published, srpt-s, srpt-b, "
        'ginger-published, plumtree, simple-gossip, simple-tree, tag, thicket, stan, not "singletree" '
        "(did you mean 'single-tree'?); for example: protocol = \"single-tree\"",
    ),
    "unknown order": (
        ONCE + 'order = "weak"',
        'a.toml, line 3: order: expected one of best-effort, none, fifo, causal, total, not "weak"; '
        'for example: order = "best-effort"',
    ),
    "a root that does not exist": (
        ONCE + 'protocol = "single-tree"\n[protocol-options]\nroot = 64',
        "a.toml, line 5: protocol-options.root: there is no node 64 among 64; choose from 0 to 63, for example: 32",
    ),
    "nothing to do": (
        "nodes = 64",
        'a.toml: nothing is published; add for example: workload = { kind = "once", window = 1000 }',
    ),
    "a rate without an end": (
        'nodes = 64\n[workload]\nkind = "rate"\nmean_gap = 3',
        "a.toml, line 2: workload: a rate needs an end; add for example: count = 1000, or: until = 50000",
    ),
    "a rate that ends before it starts": (
        'nodes = 64\n[workload]\nkind = "rate"\nmean_gap = 3\nstart = 50\nuntil = 50',
        "a.toml, line 6: workload.until: expected a time after the start, 50, not 50; for example: until = 1050",
    ),
    "too many publications": (
        'nodes = 64\n[workload]\nkind = "rate"\nmean_gap = 0.5\nuntil = 5000000',
        "a.toml, line 2: workload: expected at most 5000000 publications, not 10000000; "
        "publish fewer, for example: count = 100000",
    ),
    "a workload that starts after the end": (
        'nodes = 64\n[workload]\nkind = "once"\nstart = 101\n[limits]\ntime = 100',
        "a.toml, line 4: workload.start: 101 is after the end of the run; choose an earlier time, for example: 50, "
        "or a later end in [limits], for example: time = 202",
    ),
    "a fault after the end": (
        ONCE + '[[fault]]\nat = 101\nkind = "crash"\nnode = 3\n[limits]\ntime = 100',
        "a.toml, line 4: fault 1, at: 101 is after the end of the run; choose an earlier time, for example: 50, "
        "or a later end in [limits], for example: time = 202",
    ),
    "a publisher that does not exist": (
        "nodes = 64\n[[publish]]\nat = 0\nnode = 70",
        "a.toml, line 4: publish 1, node: there is no node 70 among 64; choose from 0 to 63, for example: 32",
    ),
    "a publisher that is down": (
        'nodes = 64\n[[publish]]\nat = 8\nnode = 7\n[[fault]]\nat = 8\nkind = "crash"\nnode = 7',
        "a.toml, line 2: publish 1: node 7 is down at time 8 and cannot publish; let for example come before it: "
        'at = 8, kind = "restart", node = 7',
    ),
    "a publisher that has not joined": (
        'nodes = 64\n[[publish]]\nat = 8\nnode = 7\n[[fault]]\nat = 9\nkind = "join"\nnode = 7',
        "a.toml, line 2: publish 1: node 7 is absent at time 8 and cannot publish; let for example come before it: "
        'at = 8, kind = "join", node = 7',
    ),
    "unknown fault": (
        ONCE + '[[fault]]\nat = 1\nkind = "crsh"\nnode = 3',
        "a.toml, line 5: fault 1, kind: expected one of crash, restart, pause, resume, join, leave, partition, "
        'clock, disk, not "crsh" (did you mean \'crash\'?); for example: kind = "crash"',
    ),
    "a ring of three": (
        ONCE + '[[fault]]\nat = 1\nkind = "partition"\ngroups = [[0], [1], [2]]\nlinked = "ring"',
        "a.toml, line 6: fault 1, groups: a ring of groups separates no nodes unless there are at least 4, not 3; for "
        "example: groups = [[0], [1], [2], [3]]",
    ),
    "a fault of nobody": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"',
        "a.toml, line 3: fault 1: expected node or nodes, but found neither; for example: node = 5, or: nodes = [5, 6]",
    ),
    "a fault of a node and nodes": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnode = 1\nnodes = [2]',
        "a.toml, line 3: fault 1: expected node or nodes, but found both; for example: node = 5, or: nodes = [5, 6]",
    ),
    "a fault of no nodes": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnodes = []',
        "a.toml, line 6: fault 1, nodes: expected at least one node; for example: nodes = [5, 6]",
    ),
    "a fault of a node that does not exist": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnode = 70',
        "a.toml, line 6: fault 1, node: there is no node 70 among 64; choose from 0 to 63, for example: 32",
    ),
    "a fault of one node too many": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnodes = "60-64"',
        "a.toml, line 6: fault 1, nodes: there is no node 64 among 64; choose from 0 to 63, for example: 32",
    ),
    "ranges that are none": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnodes = "3 to 5"',
        'a.toml, line 6: fault 1, nodes: expected ranges of nodes, not "3 to 5"; write for example "0-15,20"',
    ),
    "a range that runs backwards": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnodes = "5-3"',
        'a.toml, line 6: fault 1, nodes: the range 5-3 runs backwards; write "3-5"',
    ),
    "a restart of a node that is up": (
        ONCE + '[[fault]]\nat = 9\nkind = "crash"\nnode = 7\n[[fault]]\nat = 5\nkind = "restart"\nnode = 7',
        "a.toml, line 7: fault 2: node 7 is up at time 5, but a restart needs a node that is down; let for example "
        'come before it: at = 5, kind = "crash", node = 7',
    ),
    "a crash of a node that has left": (
        ONCE + '[[fault]]\nat = 1\nkind = "leave"\nnode = 7\n[[fault]]\nat = 5\nkind = "crash"\nnodes = "6-7"',
        "a.toml, line 7: fault 2: node 7 is absent at time 5, but a crash needs a node that is up or paused; let for "
        'example come before it: at = 5, kind = "join", node = 7',
    ),
    "a resume of a node that is down": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnode = 7\n[[fault]]\nat = 5\nkind = "resume"\nnode = 7',
        "a.toml, line 7: fault 2: node 7 is down at time 5, but a resume needs a node that is paused; "
        "check the faults of node 7 before that time",
    ),
    "a join of a node that is there": (
        ONCE + '[[fault]]\nat = 1\nkind = "pause"\nnode = 7\n[[fault]]\nat = 5\nkind = "join"\nnode = 7',
        "a.toml, line 7: fault 2: node 7 is paused at time 5, but a join needs a node that is absent; "
        "check the faults of node 7 before that time",
    ),
    "groups that overlap": (
        ONCE + '[[fault]]\nat = 1\nkind = "partition"\ngroups = ["0-31", "31-63"]',
        "a.toml, line 6: fault 1, groups 2: node 31 is in group 1 too; put each node into one group at most, "
        'for example: groups = ["0-31", "32-63"]',
    ),
    "a partition of nothing": (
        ONCE + '[[fault]]\nat = 1\nkind = "partition"\ngroups = ["0-63"]',
        "a.toml, line 6: fault 1, groups: expected groups of at least one node each, and nodes outside of "
        'the first group; for example: groups = ["0-31", "32-63"]',
    ),
    "an empty group": (
        ONCE + '[[fault]]\nat = 1\nkind = "partition"\ngroups = [[1], []]',
        "a.toml, line 6: fault 1, groups: expected groups of at least one node each, and nodes outside of "
        'the first group; for example: groups = ["0-31", "32-63"]',
    ),
    "a partition that ends before it begins": (
        ONCE + '[[fault]]\nat = 5\nkind = "partition"\ngroups = [[1]]\nuntil = 5',
        "a.toml, line 7: fault 1, until: expected a time after the partition begins at 5, not 5; "
        "for example: until = 1005",
    ),
    "unknown level": (
        ONCE + '[trace]\nlevel = "delivery"',
        'a.toml, line 4: trace.level: expected one of counts, deliveries, everything, not "delivery" '
        "(did you mean 'deliveries'?); for example: level = \"deliveries\"",
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_scenario_is_explained(text: str, expected: str) -> None:
    assert complaint(text) == expected
