"""The columns that the lists of RabbitMQ 3.10's rabbitmqctl have; what there is none of here is empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["COLUMNS"]

COLUMNS: Final[Mapping[str, frozenset[str]]] = {
    "list_queues": frozenset(
        """
        arguments auto_delete consumer_capacity consumer_utilisation consumers disk_reads disk_writes
        durable exclusive exclusive_consumer_pid exclusive_consumer_tag head_message_timestamp leader
        members memory message_bytes message_bytes_persistent message_bytes_ram message_bytes_ready
        message_bytes_unacknowledged messages messages_persistent messages_ram messages_ready
        messages_ready_ram messages_unacknowledged messages_unacknowledged_ram name online owner_pid pid
        policy slave_pids state synchronised_slave_pids type
        """.split()
    ),
    "list_connections": frozenset(
        """
        auth_mechanism channel_max channels client_properties connected_at frame_max host name
        peer_cert_issuer peer_cert_subject peer_cert_validity peer_host peer_port pid port protocol
        recv_cnt recv_oct send_cnt send_oct send_pend ssl ssl_cipher ssl_hash ssl_key_exchange
        ssl_protocol state timeout user vhost
        """.split()
    ),
    "list_channels": frozenset(
        """
        acks_uncommitted confirm connection consumer_count global_prefetch_count messages_unacknowledged
        messages_uncommitted messages_unconfirmed name number pid prefetch_count transactional user
        vhost
        """.split()
    ),
    "list_consumers": frozenset(
        """
        ack_required active activity_status arguments channel_pid consumer_tag prefetch_count queue_name
        """.split()
    ),
    "list_exchanges": frozenset(
        """
        arguments auto_delete durable internal name policy type
        """.split()
    ),
    "list_bindings": frozenset(
        """
        arguments destination_kind destination_name routing_key source_kind source_name
        """.split()
    ),
    "list_feature_flags": frozenset("desc doc_url name provided_by stability state".split()),
    "list_vhosts": frozenset(
        """
        cluster_state default_queue_type description name tags tracing
        """.split()
    ),
}
"""By verb."""
