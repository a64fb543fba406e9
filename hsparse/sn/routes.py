"""The route table of the core: the handler of each request, and the right that it needs in its domain."""

from __future__ import annotations

from hsparse.model.acl import Right
from hsparse.model.ids import COLLECTIONS
from hsparse.sn.about import get_about, get_info, get_livez, get_metrics, get_openapi, get_readyz, get_users
from hsparse.sn.chunks.handlers import (
    get_chunk,
    get_chunk_selection,
    get_chunk_value,
    get_chunks,
    put_chunk_value,
)
from hsparse.sn.chunks.stored_chunk_read import post_chunk_values
from hsparse.sn.domains.acl_handlers import delete_acl, get_acl, get_acls, put_acl
from hsparse.sn.domains.folder_handlers import get_domains
from hsparse.sn.domains.handlers import delete_domain, get_domain, post_domain, put_domain
from hsparse.sn.objects.attribute_handlers import (
    delete_attribute,
    delete_attributes,
    get_attribute,
    get_attribute_value,
    get_attributes,
    post_attributes,
    put_attribute,
    put_attribute_value,
    put_attributes,
)
from hsparse.sn.objects.dataset_creation import post_datasets
from hsparse.sn.objects.dataset_handlers import get_dataset_type, put_shape
from hsparse.sn.objects.extent_polling import get_shape
from hsparse.sn.objects.handlers import (
    delete_object,
    get_dataset,
    get_object,
    get_object_by_path,
    list_objects,
    post_datatypes,
    post_groups,
)
from hsparse.sn.objects.link_handlers import delete_link, delete_links, get_link, put_link, put_links
from hsparse.sn.objects.link_listing import get_links, post_links
from hsparse.sn.route import Route
from hsparse.sn.values.density import get_density
from hsparse.sn.values.handlers import (
    delete_value,
    get_defined,
    get_reduce,
    get_value,
    post_defined,
    post_erase,
    post_reduce,
    post_value,
    post_values,
    put_value,
)

ANY = "/{collection:groups|datasets|datatypes}/{id}"
"""The path template of an object of any collection, which `spelled_out` replaces."""


DOMAIN_ROUTES = (
    Route("GET", "/about", get_about, None, queued=False),
    Route("GET", "/info", get_info, None, queued=False),
    Route("GET", "/users", get_users, None),
    Route("GET", "/livez", get_livez, None, queued=False),
    Route("GET", "/readyz", get_readyz, None, queued=False),
    Route("GET", "/metrics", get_metrics, None, queued=False),
    Route("GET", "/openapi.json", get_openapi, None),
    Route("GET", "/", get_domain, None),
    Route("POST", "/", post_domain, None, reads_only=True),
    Route("PUT", "/", put_domain, None),
    Route("DELETE", "/", delete_domain, None),
    Route("GET", "/domains", get_domains, None),
    Route("GET", "/acls", get_acls, Right.READ_ACL),
    Route("GET", "/acls/{user}", get_acl, None),
    Route("PUT", "/acls/{user}", put_acl, Right.UPDATE_ACL),
    Route("DELETE", "/acls/{user}", delete_acl, Right.UPDATE_ACL),
)

OBJECT_ROUTES = (
    Route("GET", "/groups/{id}", get_object, Right.READ),
    Route("DELETE", "/groups/{id}", delete_object, Right.DELETE),
    Route("GET", "/groups", list_objects, Right.READ),
    Route("POST", "/groups", post_groups, Right.CREATE),
    Route("GET", "/groups/", get_object_by_path, Right.READ),
    Route("GET", "/datatypes/{id}", get_object, Right.READ),
    Route("DELETE", "/datatypes/{id}", delete_object, Right.DELETE),
    Route("GET", "/datatypes", list_objects, Right.READ),
    Route("POST", "/datatypes", post_datatypes, Right.CREATE),
    Route("GET", "/datatypes/", get_object_by_path, Right.READ),
    Route("GET", "/datasets/{id}", get_dataset, Right.READ),
    Route("DELETE", "/datasets/{id}", delete_object, Right.DELETE),
    Route("GET", "/datasets", list_objects, Right.READ),
    Route("POST", "/datasets", post_datasets, Right.CREATE),
    Route("GET", "/datasets/", get_object_by_path, Right.READ),
    Route("GET", "/datasets/{id}/type", get_dataset_type, Right.READ),
    Route("GET", "/datasets/{id}/shape", get_shape, Right.READ),
    Route("PUT", "/datasets/{id}/shape", put_shape, Right.UPDATE, adds=False),
)

LINK_ROUTES = (
    Route("GET", "/groups/{id}/links", get_links, Right.READ),
    Route("POST", "/groups/{id}/links", post_links, Right.READ),
    Route("PUT", "/groups/{id}/links", put_links, Right.CREATE),
    Route("DELETE", "/groups/{id}/links", delete_links, Right.DELETE),
    Route("GET", "/groups/{id}/links/{title}", get_link, Right.READ),
    Route("PUT", "/groups/{id}/links/{title}", put_link, Right.CREATE),
    Route("DELETE", "/groups/{id}/links/{title}", delete_link, Right.DELETE),
)

ATTRIBUTE_ROUTES = (
    Route("GET", f"{ANY}/attributes/{{name}}", get_attribute, Right.READ),
    Route("PUT", f"{ANY}/attributes/{{name}}", put_attribute, Right.CREATE),
    Route("DELETE", f"{ANY}/attributes/{{name}}", delete_attribute, Right.DELETE),
    Route("GET", f"{ANY}/attributes", get_attributes, Right.READ),
    Route("POST", f"{ANY}/attributes", post_attributes, Right.READ),
    Route("PUT", f"{ANY}/attributes", put_attributes, Right.CREATE),
    Route("DELETE", f"{ANY}/attributes", delete_attributes, Right.DELETE),
    Route("GET", f"{ANY}/attributes/{{name}}/value", get_attribute_value, Right.READ),
    Route("PUT", f"{ANY}/attributes/{{name}}/value", put_attribute_value, Right.UPDATE),
)

VALUE_ROUTES = (
    Route("GET", "/datasets/{id}/value", get_value, Right.READ),
    Route("PUT", "/datasets/{id}/value", put_value, Right.UPDATE, streams=True),
    Route("POST", "/datasets/{id}/value", post_value, Right.READ),
    Route("DELETE", "/datasets/{id}/value", delete_value, Right.UPDATE),
    Route("POST", "/datasets/values", post_values, Right.READ),
    Route("GET", "/datasets/{id}/defined", get_defined, Right.READ),
    Route("POST", "/datasets/{id}/defined", post_defined, Right.READ),
    Route("GET", "/datasets/{id}/density", get_density, Right.READ),
    Route("POST", "/datasets/{id}/erase", post_erase, Right.UPDATE, adds=False),
    Route("GET", "/datasets/{id}/reduce", get_reduce, Right.READ),
    Route("POST", "/datasets/{id}/reduce", post_reduce, Right.READ),
)

CHUNK_ROUTES = (
    Route("GET", "/datasets/{id}/chunks", get_chunks, Right.READ),
    Route("GET", "/datasets/{id}/chunks/selection", get_chunk_selection, Right.READ),
    Route("POST", "/datasets/{id}/chunks/values", post_chunk_values, Right.READ),
    Route("GET", "/datasets/{id}/chunks/{chunk}", get_chunk, Right.READ),
    Route("GET", "/datasets/{id}/chunks/{chunk}/value", get_chunk_value, Right.READ),
    Route("PUT", "/datasets/{id}/chunks/{chunk}/value", put_chunk_value, Right.UPDATE),
)

ROUTES: tuple[Route, ...] = (
    DOMAIN_ROUTES + ATTRIBUTE_ROUTES + OBJECT_ROUTES + VALUE_ROUTES + LINK_ROUTES + CHUNK_ROUTES
)


def spelled_out(path: str) -> tuple[str, ...]:
    """Return the path with `ANY` replaced by the path of each collection, or the path alone if it has no `ANY`."""
    return (
        tuple(path.replace(ANY, f"/{name}/{{id}}") for name in COLLECTIONS.values())
        if ANY in path
        else (path,)
    )
