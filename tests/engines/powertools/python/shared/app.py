import os

from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent,
)

from provider import take_payment

store = DynamoDBPersistenceLayer(
    table_name=os.environ["IDEMPOTENCY_TABLE"],
    key_attr="pk",
    expiry_attr="ttl",
)
config = IdempotencyConfig(
    event_key_jmespath="orderId",
    payload_validation_jmespath="amount",
    expires_after_seconds=24 * 60 * 60,
)


@idempotent(config=config, persistence_store=store)
def handler(event, context):
    return take_payment(event)
