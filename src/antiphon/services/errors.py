"""Errors of services, beside those that every interface shares."""

from __future__ import annotations

from antiphon.kernel.errors import PeerError


class ServiceError(PeerError):
    """An operation or query of a service raised an exception that it does not declare; the text has it.

    The state of the service is as if the operation had not been called.
    """


class UnknownOperationError(PeerError):
    """A call names an operation or an argument that this version of the service does not have."""


class TablesError(PeerError):
    """The tables that a service has made for itself cannot be part of a snapshot, or not of this store."""


class ResultGoneError(PeerError):
    """An operation has taken place, once, and no replica keeps its result any more."""
