"""The device's timer in a test without a device: none."""


def available():
    return False


def reason():
    return "there is no device to time on"
