"""Adapters for other libraries, each imported on demand: `divprism.integrations.torchmetrics`."""
