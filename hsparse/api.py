"""The names that an extension may import. Their meaning changes only if `API_VERSION` changes.

`api.pyi` declares the same names for type checkers. Each name is imported at its first use, so extensions start fast.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "hsparse.attempts": "MAX_CHANGE_ATTEMPTS",
    "hsparse.bounded_cache": "BoundedCache remember",
    "hsparse.cli.environment": "server_default",
    "hsparse.cli.tree.server_tree": "ServerTree normal_path",
    "hsparse.cli.tree.tree_command": "Output add_tree_arguments",
    "hsparse.clock": "Clock SystemClock",
    "hsparse.concurrency.gathering": "gather_all gather_each",
    "hsparse.concurrency.request_trace": "Attribute Tracer queue_user seconds_left",
    "hsparse.concurrency.single_flight": "shielded",
    "hsparse.config": "Settings exports_spans",
    "hsparse.errors": (
        "BadRequest Busy Conflict ErrorKind Forbidden HsparseError MISSING_KINDS Misconfigured "
        "NotFound OverQuota RateLimited StoreFailed UNREADABLE_KINDS Unauthenticated"
    ),
    "hsparse.extension": "API_VERSION Command Extension",
    "hsparse.model.acl": "Principal Right",
    "hsparse.model.ids": "domain_prefix tree_of_key",
    "hsparse.model.layout": "STRIPED",
    "hsparse.model.schema": "bucket_features",
    "hsparse.model.stripes": "AT PLACED STRIPE bucket_of placed_key",
    "hsparse.optional_module": "OptionalModule",
    "hsparse.setting": "MIB parse_size setting",
    "hsparse.sn.app": "Parts",
    "hsparse.sn.auth.line_file": "LineFile LineFormat TryLimit is_blank",
    "hsparse.sn.auth.password_file": "PasswordFile",
    "hsparse.sn.auth.roles": "NAME check_group_name check_user_name is_user_name",
    "hsparse.sn.coding": "Coding accepted_coding",
    "hsparse.sn.data_nodes.owners": "Owners key_pages",
    "hsparse.sn.domains.folder_handlers": "usable_rights",
    "hsparse.sn.http.challenge": "is_known",
    "hsparse.sn.http.request": "named_types read_json read_json_object",
    "hsparse.sn.http.response": "hrefs respond_computed",
    "hsparse.sn.policies.access": "AccessPolicy",
    "hsparse.sn.policies.policy": "Next",
    "hsparse.sn.records.second_names": "DomainNames FolderLimits names_of",
    "hsparse.sn.request": "Domain OBJECT_BYTES Request respond",
    "hsparse.sn.route": "Route",
    "hsparse.sn.service": "Service",
    "hsparse.storage.delegating_store": "DelegatingStore",
    "hsparse.storage.object_store": "Buffer Entry ObjectStore Page Stored",
    "hsparse.wire.message": "Record",
    "hsparse.wire.record_message": "SetFields",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'hsparse.api' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
