"""The configuration files of a :class:`~starverse.testing.slurm_lab.SlurmLab`: pure text.

Half of the nodes have the feature ``ib``, half ``eth``, each with a partition and a leaf switch of its own;
each node has its own name among its features, too.
Ports: the controller, then slurmrestd, then one for each node.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CARDS_PER_NODE = 8
CPUS_PER_NODE = 64
MEMORY_MIB_PER_NODE = 512_000


@dataclass(frozen=True, slots=True)
class LabPlan:
    """What a lab is made of. ``munge`` false: no authentication at all, for an ordinary user's lab."""

    folder: Path
    nodes: int
    port: int
    host: str
    user: str
    munge: bool
    card_type: str
    devices: str
    extra: str = ""
    names: tuple[str, ...] = ()

    @property
    def rest_port(self) -> int:
        return self.port + 1

    @property
    def ports(self) -> range:
        return range(self.port, self.port + 2 + self.nodes)

    @property
    def ib_nodes(self) -> int:
        return (self.nodes + 1) // 2

    def name(self, number: int) -> str:
        """The name of node ``number``, counted from 1."""
        return self.names[number - 1] if self.names else f"gpu{number:03d}"


def slurm_conf(plan: LabPlan) -> str:
    """The whole ``slurm.conf``."""
    lab = plan.folder
    return "\n".join(
        [
            "ClusterName=lab",
            f"SlurmctldHost={plan.host}(127.0.0.1)",
            f"SlurmctldPort={plan.port}",
            f"SlurmUser={plan.user}",
            f"SlurmdUser={plan.user}",
            *_authentication(plan),
            "MpiDefault=none",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "PropagateResourceLimits=NONE",
            f"SlurmctldPidFile={lab}/run/slurmctld.pid",
            f"SlurmdPidFile={lab}/run/slurmd.%n.pid",
            f"SlurmdSpoolDir={lab}/spool/%n",
            f"StateSaveLocation={lab}/state",
            f"SlurmctldLogFile={lab}/log/slurmctld.log",
            f"SlurmdLogFile={lab}/log/slurmd.%n.log",
            "SlurmdDebug=error",
            "SlurmdParameters=config_overrides",
            *(() if "JobRequeue=" in plan.extra else ("JobRequeue=0",)),
            "ReturnToService=2",
            "SlurmdTimeout=10",
            "KillWait=2",
            "MinJobAge=300",
            "TreeWidth=65533",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU_Memory",
            "GresTypes=gpu",
            "DefMemPerCPU=256",
            "TopologyPlugin=topology/tree",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0,"
            "bf_continue",
            *_nodes_and_partitions(plan),
            plan.extra,
            "",
        ]
    )


def gres_conf(plan: LabPlan) -> str:
    return f"Name=gpu Type={plan.card_type} File={plan.devices}\n"


def topology_conf(plan: LabPlan) -> str:
    lines = [f"SwitchName=ib-leaf1 Nodes={_span(plan, 1, plan.ib_nodes)}"]
    if plan.nodes > plan.ib_nodes:
        lines.append(f"SwitchName=eth-leaf1 Nodes={_span(plan, plan.ib_nodes + 1, plan.nodes)}")
    return "\n".join([*lines, ""])


def _authentication(plan: LabPlan) -> list[str]:
    tokens = ["AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={plan.folder}/etc/jwt.key"]
    if plan.munge:
        return [
            "AuthType=auth/munge",
            f"AuthInfo=socket={plan.folder}/sock/munge.socket,cred_expire=5",
            *tokens,
        ]
    return ["AuthType=auth/none", "CredType=cred/none", *tokens]


def _nodes_and_partitions(plan: LabPlan) -> list[str]:
    lines = [
        f"NodeName=DEFAULT CPUs={CPUS_PER_NODE} Boards=1 SocketsPerBoard=2"
        f" CoresPerSocket={CPUS_PER_NODE // 2}"
        f" ThreadsPerCore=1 RealMemory={MEMORY_MIB_PER_NODE} Gres=gpu:{plan.card_type}:{CARDS_PER_NODE}"
    ]
    halves = [("ib", 1, plan.ib_nodes), ("eth", plan.ib_nodes + 1, plan.nodes)]
    for fabric, first, last in halves:
        if first <= last:
            lines += [
                f"NodeName={plan.name(number)} NodeHostname={plan.host} NodeAddr=127.0.0.1"
                f" Port={plan.port + 1 + number} Feature={fabric},{plan.name(number)}"
                for number in range(first, last + 1)
            ]
    lines.append("PartitionName=DEFAULT MaxTime=INFINITE State=UP PreemptMode=OFF")
    lines.append("PartitionName=all Nodes=ALL Default=YES")
    for fabric, first, last in halves:
        if first <= last:
            lines.append(f"PartitionName={fabric} Nodes={_span(plan, first, last)}")
    return lines


def _span(plan: LabPlan, first: int, last: int) -> str:
    return ",".join(plan.name(number) for number in range(first, last + 1))
