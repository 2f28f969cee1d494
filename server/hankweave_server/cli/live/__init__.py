"""`hankweave attach`: a server watched and steered from a terminal, as any client may."""
