"""The pinned programs of each family, one check for each side: what generation rarely reaches, as data."""

from conformance.checks import check
from conformance.interface.results import Layer
from conformance.programs import pinned
from conformance.programs.client_words import ClientFamily
from conformance.programs.owner_words import OwnerFamily
from conformance.programs.running import Generation
from conformance.scenario.check import Family


def _register(family: Family, side: str) -> None:
    texts = tuple(pinned.texts(family, side))
    if not texts:
        return

    def run(g: Generation) -> None:
        if side == "owner":
            g.run_stored(OwnerFamily(name=family), texts)
        else:
            g.run_stored(ClientFamily(name=family), texts)

    run.__name__ = f"{pinned.CHECKS}{'' if side == 'owner' else 'clients_in_'}{family.replace('-', '_')}"
    run.__doc__ = f"The {len(texts)} pinned programs of the family {family}: each answer and file is possible."
    labels = [label for text in texts if (label := pinned.labelled(text)) is not None]
    requirements = dict.fromkeys(name for label in labels for name in label.requirements)
    check(family, *requirements, layer=Layer.MODEL, side=side)(run)


for _family in Family:
    for _side in ("owner", "client"):
        _register(_family, _side)
