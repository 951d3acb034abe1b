"""The broker tree: topics with keys, an order chosen per publication, through crashes of brokers."""
