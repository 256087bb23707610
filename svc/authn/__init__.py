"""Evidence to role, or refusal: one module for each way to prove an identity."""
