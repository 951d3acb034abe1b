"""Which experiments there are, and how they are found by name."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from antiphon.kernel.errors import UsageError
from antiphon_lab.experiments.aggregation.better import AGGREGATION_BETTER
from antiphon_lab.experiments.aggregation.buffers import FIG_4_6, FIG_4_7
from antiphon_lab.experiments.aggregation.dependencies import FIG_4_3
from antiphon_lab.experiments.aggregation.latency import FIG_4_4, FIG_4_5
from antiphon_lab.experiments.aggregation.packets import TABLE_4_1, TABLE_4_2, TABLE_4_3
from antiphon_lab.experiments.aggregation.trees import FIG_4_9
from antiphon_lab.experiments.brisa.churn import TABLE_4_1 as BRISA_TABLE_4_1
from antiphon_lab.experiments.brisa.floods import FIG_4_3 as BRISA_4_3
from antiphon_lab.experiments.brisa.network import FIG_4_10, FIG_4_11, FIG_4_12
from antiphon_lab.experiments.brisa.path_overhead import PATHS
from antiphon_lab.experiments.brisa.peer_sampling_figures import FAILURES, OVERLAYS
from antiphon_lab.experiments.brisa.rivals_figures import FIG_4_17, FIG_4_18
from antiphon_lab.experiments.brisa.rivals_hosts import TABLE_4_3 as BRISA_TABLE_4_3
from antiphon_lab.experiments.brisa.rivals_recovery import FIG_4_19
from antiphon_lab.experiments.brisa.several_trees import REUSE, SEVERAL_TREES
from antiphon_lab.experiments.brisa.structure import FIG_4_7 as BRISA_4_7
from antiphon_lab.experiments.brisa.structure import FIG_4_8 as BRISA_4_8
from antiphon_lab.experiments.brisa.structure import FIG_4_9 as BRISA_4_9
from antiphon_lab.experiments.brisa.trees import FIG_4_13, FIG_4_14, FIG_4_15, FIG_4_16
from antiphon_lab.experiments.epto.better import BETTER as EPTO_BETTER
from antiphon_lab.experiments.epto.corrections import CORRECTIONS
from antiphon_lab.experiments.epto.figures import FIG_5_7 as EPTO_5_7
from antiphon_lab.experiments.epto.figures import FIG_5_8 as EPTO_5_8
from antiphon_lab.experiments.epto.figures import FIG_5_9 as EPTO_5_9
from antiphon_lab.experiments.epto.limits import FIG_5_10A as EPTO_5_10A
from antiphon_lab.experiments.epto.limits import FIG_5_10B as EPTO_5_10B
from antiphon_lab.experiments.epto.limits import FIG_5_11 as EPTO_5_11
from antiphon_lab.experiments.ginger.as_published import GINGER_AS_PUBLISHED
from antiphon_lab.experiments.ginger.cost import COST
from antiphon_lab.experiments.ginger.latency import FAULTS_AND_LATENCY, KEYS_AND_LATENCY
from antiphon_lab.experiments.ginger.parents import PARENTS
from antiphon_lab.experiments.ginger.reconfiguration import RECONFIGURATION
from antiphon_lab.experiments.places.aggregation import AGGREGATION_OVER_CITIES
from antiphon_lab.experiments.places.brokers import BROKERS
from antiphon_lab.experiments.places.cells import CELLS
from antiphon_lab.experiments.places.gossip import GOSSIP
from antiphon_lab.experiments.places.trees import TREES as PLACES_TREES
from antiphon_lab.experiments.stan.crossposts import FIG_3_15
from antiphon_lab.experiments.stan.dissemination import TREES_OVER_STAN
from antiphon_lab.experiments.stan.dynamics import FIG_3_11, FIG_3_12, FIG_3_13
from antiphon_lab.experiments.stan.figures import FIG_3_7, FIG_3_8, FIG_3_9
from antiphon_lab.experiments.stan.fitness import FIG_3_10, FIG_3_14, LEAKS
from antiphon_lab.experiments.stan.total_order import TOTAL_ORDER
from antiphon_lab.experiments.vcube.better import BETTER
from antiphon_lab.experiments.vcube.brokers import FIG_5_12
from antiphon_lab.experiments.vcube.causal_information import FIG_3_1
from antiphon_lab.experiments.vcube.changing_members import TABLE_II
from antiphon_lab.experiments.vcube.churn_figures import FIG_5_11A
from antiphon_lab.experiments.vcube.churn_rates import FIG_5_11B
from antiphon_lab.experiments.vcube.diagnosis import DIAGNOSIS
from antiphon_lab.experiments.vcube.discussion import FIG_5_9
from antiphon_lab.experiments.vcube.many_topics import FIG_5_10
from antiphon_lab.experiments.vcube.member_shares import FIG_5_7A, FIG_5_7B
from antiphon_lab.experiments.vcube.one_publisher import FIG_5_6A, FIG_5_6B
from antiphon_lab.experiments.vcube.one_tree import FIG_2_9
from antiphon_lab.experiments.vcube.send_queues import TABLE_5_1
from antiphon_lab.experiments.vcube.several_publishers import FIG_5_8A, FIG_5_8B
from antiphon_lab.reproduction.experiment import Experiment
from antiphon_lab.universes.figures import FIG_3_4, FIG_3_5, FIG_3_6
from antiphon_lab.universes.table import TABLE_3_1

EXPERIMENTS: tuple[Experiment[Any, Any], ...] = (
    FIG_2_9,
    DIAGNOSIS,
    FIG_3_1,
    TABLE_4_1,
    TABLE_4_2,
    TABLE_4_3,
    FIG_4_3,
    FIG_4_4,
    FIG_4_5,
    FIG_4_6,
    FIG_4_7,
    FIG_4_9,
    FIG_5_6A,
    FIG_5_6B,
    FIG_5_7A,
    FIG_5_7B,
    FIG_5_8A,
    FIG_5_8B,
    TABLE_5_1,
    FIG_5_9,
    FIG_5_10,
    FIG_5_11A,
    FIG_5_11B,
    FIG_5_12,
    TABLE_II,
    BETTER,
    AGGREGATION_BETTER,
    RECONFIGURATION,
    FAULTS_AND_LATENCY,
    KEYS_AND_LATENCY,
    GINGER_AS_PUBLISHED,
    COST,
    PARENTS,
    BRISA_4_3,
    BRISA_4_7,
    BRISA_4_8,
    BRISA_4_9,
    PATHS,
    FIG_4_10,
    FIG_4_11,
    FIG_4_12,
    BRISA_TABLE_4_1,
    FIG_4_13,
    FIG_4_14,
    FIG_4_15,
    FIG_4_16,
    SEVERAL_TREES,
    REUSE,
    OVERLAYS,
    FAILURES,
    FIG_4_17,
    FIG_4_18,
    BRISA_TABLE_4_3,
    FIG_4_19,
    FIG_3_7,
    FIG_3_8,
    FIG_3_9,
    FIG_3_10,
    LEAKS,
    FIG_3_11,
    FIG_3_12,
    FIG_3_13,
    FIG_3_14,
    FIG_3_15,
    TOTAL_ORDER,
    TREES_OVER_STAN,
    EPTO_5_7,
    EPTO_5_8,
    EPTO_5_9,
    EPTO_5_10A,
    EPTO_5_10B,
    EPTO_5_11,
    EPTO_BETTER,
    CORRECTIONS,
    TABLE_3_1,
    FIG_3_4,
    FIG_3_5,
    FIG_3_6,
    PLACES_TREES,
    BROKERS,
    GOSSIP,
    AGGREGATION_OVER_CITIES,
    CELLS,
)


def find(names: list[str]) -> list[Experiment[Any, Any]]:
    """The experiments of these names, in the order of the registry; the name of a system means all of its own."""
    wanted: set[str] = set()
    for name in names:
        matching = {experiment.name for experiment in EXPERIMENTS if name in (experiment.name, system_of(experiment))}
        if not matching:
            raise UsageError(unknown(name))
        wanted |= matching
    return [experiment for experiment in EXPERIMENTS if not names or experiment.name in wanted]


def system_of(experiment: Experiment[Any, Any]) -> str:
    """The first part of a name: ``vcube-ps`` of ``vcube-ps/fig-5.8a``."""
    return experiment.name.split("/")[0]


def unknown(name: str) -> str:
    """The complaint about an unknown name."""
    known = [experiment.name for experiment in EXPERIMENTS]
    near = get_close_matches(
        name, [*known, *{system_of(experiment): None for experiment in EXPERIMENTS}], n=1, cutoff=0.4
    )
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return f"there is no experiment {name!r}{hint} `antiphon reproduce --list` shows them all"
