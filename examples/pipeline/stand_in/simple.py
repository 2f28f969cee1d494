"""Prime numbers."""


def primes_up_to(limit):
    """Lists the prime numbers up to a limit, which counts."""
    primes = []
    for number in range(2, limit + 1):
        for prime in primes:
            if number % prime == 0:
                break
        else:
            primes.append(number)
    return primes
