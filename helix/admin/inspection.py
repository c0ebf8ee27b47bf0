"""Pages that only show: no adding, changing or deleting, no COUNT over a big table, search by exact keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from helix.admin.operators import may_operate
from helix.selectors import as_uuid


class BoundedPaginator(Paginator):
    """Counts no further than ``MOST`` rows: a table of a hundred million opens as fast as an empty one."""

    MOST = 5000

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return rows.order_by()[: self.MOST].count()  # type: ignore[no-any-return]


class Inspection(admin.ModelAdmin):
    """A read-only page. What an operator may do about a row has a form of its own (see `interventions`).

    uuid_keys, text_keys: columns that a search term is compared with, exactly, so that an index can answer. Several
    terms narrow one another: ``<session id> <call id>``.
    """

    uuid_keys: tuple[str, ...] = ()
    text_keys: tuple[str, ...] = ()

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Operators see every page; others those that Django's own view permission opens."""
        return may_operate(request) or super().has_view_permission(request, obj)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only what the sidebar offers: a free look-up in the address would tell hidden values letter by letter."""
        return lookup.partition("__")[0] in self.list_filter

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        return (*self.uuid_keys, *self.text_keys)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        for term in search_term.split():
            named = Q(pk__in=())
            for column in self.text_keys:
                named |= Q(**{column: term})
            key = as_uuid(term)
            if key is not None:
                for column in self.uuid_keys:
                    named |= Q(**{column: key})
            queryset = queryset.filter(named)
        return queryset, False


def column(title: str) -> Callable[[Any], Any]:
    """Name a computed column or field."""
    return admin.display(description=title, empty_value="-")
