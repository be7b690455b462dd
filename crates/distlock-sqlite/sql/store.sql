SELECT name, boot, counter, ceiling FROM store
