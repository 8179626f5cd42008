def product(x, weight):
    return x @ weight
