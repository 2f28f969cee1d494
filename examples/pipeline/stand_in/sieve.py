"""Prime numbers."""


def primes_up_to(limit):
    """Lists the prime numbers up to a limit, which counts; by the sieve of Eratosthenes."""
    if limit < 2:
        return []

    is_prime = bytearray([0, 0]) + bytearray([1]) * (limit - 1)
    for number in range(2, int(limit**0.5) + 1):
        if is_prime[number]:
            multiples = range(number * number, limit + 1, number)
            is_prime[multiples.start :: number] = bytes(len(multiples))

    return [number for number, prime in enumerate(is_prime) if prime]
