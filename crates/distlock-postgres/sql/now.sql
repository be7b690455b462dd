SELECT now_us()
