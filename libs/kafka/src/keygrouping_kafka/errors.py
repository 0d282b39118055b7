"""Which errors of Kafka may pass by themselves."""

from __future__ import annotations

from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    InconsistentGroupProtocolError,
    InvalidTopicError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)

_FATAL = (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    InconsistentGroupProtocolError,
    InvalidTopicError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)


def can_be_retried(error: BaseException) -> bool:
    """Whether an error may pass by itself: a broker away, a coordinator moving; not missing rights."""
    if isinstance(error, TimeoutError | OSError):
        return True
    return isinstance(error, KafkaError) and not isinstance(error, _FATAL)
