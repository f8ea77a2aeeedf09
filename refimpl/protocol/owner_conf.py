"""The configuration of an owner that stands in its tables, for the owner's client: it must hold no secret."""

import re
from typing import Final

import msgspec

from refimpl.protocol.commits import Rejected, RejectionReason

SECRET_KEYS: Final = (
    "accesskey",
    "accesskeyid",
    "accountkey",
    "apikey",
    "authorization",
    "bearer",
    "clientsecret",
    "connectionstring",
    "credential",
    "credentials",
    "keyfile",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "pwd",
    "secret",
    "secretkey",
    "sharedaccesssignature",
    "token",
)
"""The complete list of secrets that `commitOwnerConf` must not have: a key is rejected if it ends with one of
these. The comparison ignores case, all characters but letters and digits, and the storage account at the end of
Azure's keys. So `fs.s3a.secret.key` and `AWS_SESSION_TOKEN` are rejected, `authenticationMode` and
`token.endpoint` are not.

managed-commits, "Enablement": every user who can read the table's storage can read this property.
"""

_AZURE_ACCOUNT = re.compile(r"\.[a-z0-9]+\.(blob|dfs)\.core\.windows\.net$")


def conf_flaw(conf: str | None) -> Rejected | None:
    """What is wrong with a `commitOwnerConf`: not a JSON map of strings, or a key that names a secret."""
    if conf is None:
        return None
    try:
        entries = msgspec.json.decode(conf, type=dict[str, str])
    except msgspec.DecodeError as error:
        return Rejected(
            reason=RejectionReason.INCONSISTENT_TABLE,
            detail=f"commitOwnerConf is not a JSON map of strings to strings: {error}",
        )
    secrets = sorted(key for key in entries if names_a_secret(key))
    if secrets:
        return Rejected(
            reason=RejectionReason.SECRET_IN_CONF,
            detail=f"every reader of the table can read commitOwnerConf; remove {', '.join(secrets)}",
        )
    return None


def names_a_secret(key: str) -> bool:
    """Whether a property of this name would hold a secret; see `SECRET_KEYS`."""
    bare = _AZURE_ACCOUNT.sub("", key.lower())
    return re.sub(r"[^a-z0-9]", "", bare).endswith(SECRET_KEYS)
