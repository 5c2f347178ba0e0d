"""The kinds of policy, by name. `--policy.kind` chooses one; another is one file and one line here."""

from typing import get_args, get_type_hints

from jaxtyping import PRNGKeyArray

from diamond_attention.errors import UserError
from diamond_attention.policies import commitments, diamond_settings
from diamond_attention.policies.commitments import CommitmentsSettings, build_commitments
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.policies.flat import FlatSettings, build_flat
from diamond_attention.policies.gsa import GsaSettings, build_gsa
from diamond_attention.policies.kind import Described, Interface, KindSettings, PolicyKind
from diamond_attention.policies.mat import MatSettings, build_mat
from diamond_attention.policies.port_hamiltonian import PortHamiltonianSettings, build_port_hamiltonian
from diamond_attention.policies.q_values import QSettings, build_q
from diamond_attention.policies.soft import SoftSettings, build_soft


def build_diamond(settings: DiamondSettings, interface: Interface, key: PRNGKeyArray) -> DiamondPolicy:
    return DiamondPolicy(
        interface.agent_features,
        interface.task_features,
        interface.action_kind,
        width=settings.width,
        mask=settings.mask,
        dropout_rate=settings.dropout_rate,
        third_block=settings.third_block,
        key=key,
    )


POLICIES: dict[str, PolicyKind] = {
    "diamond": PolicyKind(
        DiamondSettings,
        build_diamond,
        memory_settings=("width",),
        describe=diamond_settings.describe,
        in_play=diamond_settings.in_play,
    ),
    "commitments": PolicyKind(
        CommitmentsSettings, build_commitments, memory_settings=("width",), describe=commitments.describe
    ),
    "flat": PolicyKind(FlatSettings, build_flat, any_size=False, memory_settings=("width",)),
    "mat": PolicyKind(MatSettings, build_mat, any_size=False, memory_settings=("width",)),
    "q-values": PolicyKind(QSettings, build_q, any_size=False, memory_settings=("width",)),
    "soft": PolicyKind(SoftSettings, build_soft, any_size=False, memory_settings=("width",)),
    "gsa": PolicyKind(GsaSettings, build_gsa, any_size=False),
    "ph-marl": PolicyKind(PortHamiltonianSettings, build_port_hamiltonian, any_size=False),
}


def register_policy(kind: PolicyKind) -> None:
    """Makes a kind of your own known, under the one value its settings' field `kind` can have."""
    names = get_args(get_type_hints(kind.settings).get("kind"))
    if len(names) != 1:
        raise UserError(f'{kind.settings.__name__} needs a field `kind: Literal["its name"] = "its name"`.')
    if POLICIES.get(names[0], kind) != kind:
        raise UserError(f"there is already a kind of policy called {names[0]!r}; choose another name.")
    POLICIES[names[0]] = kind


def described(settings: KindSettings) -> Described:
    """What readers are told a policy with these settings is."""
    return POLICIES[settings.kind].describe(settings)
