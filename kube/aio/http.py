"""HTTP responses of servers that may send any amount."""

import aiohttp


async def read_up_to(response: aiohttp.ClientResponse, size: int) -> bytes:
    """Read a body to its end, or until more than `size` bytes have arrived."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > size:
            break
    return bytes(body)
