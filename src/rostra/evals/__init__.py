"""How good a policy is, on questions it was never trained on."""
