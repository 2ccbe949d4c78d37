"""How records of tools/gpu_check are checked: that what is there is of its kind."""

NUMBER = (int, float)


def want(found, holder, where, **kinds):
    """Adds a sentence to `found` for each key of an object that is missing or of another kind; whether it is an object."""
    fine = isinstance(holder, dict)
    for key, kind in kinds.items():
        if not fine or not isinstance(holder.get(key), kind):
            found.append(f"{where}{key}: got {holder.get(key) if fine else holder!r}")
    return fine
