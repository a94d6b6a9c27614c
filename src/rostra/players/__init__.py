"""Who speaks: models, scripts, rehearsals."""
