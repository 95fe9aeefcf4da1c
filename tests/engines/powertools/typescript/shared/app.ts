import { IdempotencyConfig, makeIdempotent } from '@aws-lambda-powertools/idempotency';
import { DynamoDBPersistenceLayer } from '@aws-lambda-powertools/idempotency/dynamodb';
import { takePayment } from './provider.js';

export const persistenceStore = new DynamoDBPersistenceLayer({
  tableName: process.env.IDEMPOTENCY_TABLE,
  keyAttr: 'pk',
  expiryAttr: 'ttl',
});
const config = new IdempotencyConfig({
  eventKeyJmesPath: 'orderId',
  payloadValidationJmesPath: 'amount',
  expiresAfterSeconds: 24 * 60 * 60,
});

export const handler = makeIdempotent(takePayment, { persistenceStore, config });
